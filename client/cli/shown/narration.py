"""Renders journal entries as lines for people: runs, goals and sessions."""

from collections.abc import Callable, Mapping
from datetime import datetime
from itertools import chain, repeat
from typing import Any, cast

from orga.client.cli.shown.decisions import in_words
from orga.client.cli.shown.text import Line, Tone, counted, on_one_line
from orga.workflows.decisions.result import call_summary
from orga.workflows.types.messages import ToolCall
from orga.workflows.types.sessions.result import TURN_ENDED, TURN_STARTED
from orga.workflows.types.status import JournalEntry
from orga.workflows.types.text import in_full
from orga.workflows.types.tool_calls.decision import DECISION_GROUNDED
from orga.workflows.types.tool_calls.gate import LEARNINGS, PLAN
from orga.workflows.types.tool_calls.loop_tools import SAGA_ENDED

_UNTOLD = {"await_turn", "send"}
"""Turns tell of both; who waits for a turn changes nothing."""


Data = dict[str, Any]


def guidance(data: Data) -> str:
    """Return what steers the turn under way, of an intervention; "" of another one."""
    message = data.get("text") if data.get("kind") == "send" else None
    said = cast("Data", message) if isinstance(message, dict) else {}
    return str(said.get("text", "")) if said.get("when_busy") == "steer" else ""


def is_told_by_turns(data: Data) -> bool:
    """Return whether an intervention is shown by what becomes of it."""
    return data.get("kind") in _UNTOLD and not guidance(data)


def _begun(data: Data) -> list[Line]:
    return [Line(f"turn {data.get('turn')}: {on_one_line(str(data.get('message', '')), 300)}", "person")]


def _ended(data: Data) -> list[Line]:
    reason, detail = on_one_line(str(data.get("reason"))), on_one_line(str(data.get("detail") or ""), 300)
    told = f"turn {data.get('turn')} {reason}{': ' if detail else ''}{detail}"
    return [Line(told, "good" if reason == "completed" else "bad")]


SESSION_TELLERS: dict[str, Callable[[Data], list[Line]]] = {TURN_STARTED: _begun, TURN_ENDED: _ended}


def _planned(data: Data) -> list[Line]:
    steps: list[Data] = data.get("steps", [])
    named = f" of pipeline {_goal_text(data, 'pipeline')}" if data.get("pipeline") else ""
    lines = [Line(f"plan{named}: {counted(len(steps), 'step')}")]
    return lines + [
        Line(f"  {_goal_text(step, 'id')} {_goal_text(step, 'skill')}: {_goal_text(step, 'goal')}{_needs(step)}")
        for step in steps
    ]


def _needs(step: Data) -> str:
    needs: list[Any] = step.get("depends_on") or []
    return f" (after {on_one_line(', '.join(map(str, needs)))})" if needs else ""


def _executed(data: Data) -> list[Line]:
    is_ok = data.get("status") == "ok"
    why = f": {_goal_text(data, 'error')}" if data.get("error") else ""
    mark = "✓" if is_ok else "✗"
    return [Line(f"{mark} {_goal_text(data, 'step')} {_goal_text(data, 'status')}{why}", "good" if is_ok else "bad")]


def _evaluated(data: Data) -> list[Line]:
    told = f"{_goal_text(data, 'step')} scored {data.get('score')}: {_goal_text(data, 'quality')}"
    return [Line(f"  {told}", "bad" if data.get("quality") == "failed" else "good")]


def _goal_decision(data: Data) -> list[Line]:
    sure = f", confidence {data['confidence']}" if "confidence" in data else ""
    why = f": {_goal_text(data, 'reason')}" if data.get("reason") else ""
    return [Line(f"decides ({_goal_text(data, 'by')}{sure}): {_goal_text(data, 'action')}{why}")]


def _goal_question(data: Data) -> list[Line]:
    return [Line(f"? asks: {_goal_text(data, 'question')}   answer it: orga answer ID TEXT", "person")]


def _answered(data: Data) -> list[Line]:
    by = f" by {_goal_text(data, 'by')}" if data.get("by") else ""
    return [Line(f"answered{by}: {_goal_text(data, 'answer')}", "person")]


def _overridden(data: Data) -> list[Line]:
    return [Line(f"by the operator's word {_goal_text(data, 'step')} is {_goal_text(data, 'skill')}", "person")]


def _compressed(data: Data) -> list[Line]:
    lost = ", ".join(map(str, data.get("lost") or ()))
    why = f": {on_one_line(lost)} would be lost" if lost else ""
    how = "" if data.get("taken") else f", kept as it was{why}"
    return [Line(f"memory: {data.get('before')} bytes to {data.get('after')}{how}")]


def _delivered(data: Data) -> list[Line]:
    return [Line(f"✓ delivered to {_goal_text(data, 'name')} ({_goal_text(data, 'kind')})", "good")]


def _undelivered(data: Data) -> list[Line]:
    where = f"{_goal_text(data, 'name')} ({_goal_text(data, 'kind')})"
    return [Line(f"✗ not delivered to {where}: {_goal_text(data, 'error')}", "bad")]


def _goal_text(data: Data, key: str) -> str:
    return on_one_line(str(data.get(key, "")))


GOAL_TELLERS: Mapping[str, Callable[[Data], list[Line]]] = {
    "PlanMade": _planned,
    "PlanAdjusted": _planned,
    "StepExecuted": _executed,
    "StepEvaluated": _evaluated,
    "DecisionMade": _goal_decision,
    "QuestionAsked": _goal_question,
    "QuestionAnswered": _answered,
    "MemoryCompressed": _compressed,
    "StepOverridden": _overridden,
    "Delivered": _delivered,
    "DeliveryFailed": _undelivered,
}


def told_note(entry: JournalEntry) -> list[Line] | None:
    """Return the lines of an entry, or None where it is of another kind."""
    teller = _NOTE_TELLERS.get(entry.event)
    return teller(entry.data) if teller else None


def _hydrated(data: Data) -> list[Line]:
    counts = [f"{data[key]} {key}" for key in ("resolved", "failed", "unresolvable") if data.get(key)]
    lines = [Line(f"looked up {counted(data.get('references_found', 0), 'reference')}: {', '.join(counts)}")]
    references: list[Data] = data.get("references", [])
    lacking = [reference for reference in references if reference.get("status") != "resolved"]
    return lines + [Line(f"✗ {_text(lack, 'value')}: {_text(lack, 'why')}", "bad") for lack in lacking]


def _compacted(data: Data) -> list[Line]:
    lines: list[str] = []
    if dropped := data.get("messages_dropped"):
        lines.append(f"{counted(dropped, 'older message')} left out of the context")
    if masked := data.get("messages_masked"):
        lines.append(f"{counted(masked, 'older result')} left out of the context")
    if replaced := data.get("messages_replaced"):
        lines.append(f"{counted(replaced, 'message')} left out: refused by a content filter of the model's provider")
    if cut := cast("list[Any]", data.get("fields_cut") or []):
        lines.append(on_one_line(f"cut to be carried on: {', '.join(map(str, cut))}", 300))
    how = {"model": ", summed up by the model", "fallback": ", their calls counted"}
    tone = "bad" if data.get("messages_replaced") else "quiet"
    return [Line(" and ".join(lines) + how.get(str(data.get("summary")), ""), tone)]


def _asked(data: Data) -> list[Line]:
    if data.get("kind") == "call":
        return [Line(f"? {_text(data, 'id')}: {in_words(data)}", "person")]
    what = f"{_text(data, 'kind')} {_text(data, 'id')}"
    return [Line(f"? waits for a person ({what}): {_text(data, 'question')}", "person")]


def _decided(data: Data) -> list[Line]:
    if data.get("kind") == "call":
        word, by = ("approved" if data.get("approved") else "denied"), data.get("approver")
        return [Line(f"{_text(data, 'tool')} {word}{_by({**data, 'by': by})} ({_text(data, 'id')})", "person")]
    if data.get("choice") == "none":
        return [Line(f"{_text(data, 'id')} waits no more", "quiet")]
    return [Line(f"{_text(data, 'id')}: {_text(data, 'choice')}{_by(data)}", "person")]


def _recovered(data: Data) -> list[Line]:
    tone: Tone = "good" if data.get("outcome") == "ok" else "plain"
    after = f", after: {_text(data, 'error')}" if data.get("error") else ""
    calls: list[Data] = data.get("calls", [])
    made = [Line(f"  ↻ {_text(call, 'tool')} instead: {_text(call, 'outcome')}") for call in calls]
    tried = f" ({data['attempts']} attempts)" if data.get("attempts") else ""
    how = f"{_text(data, 'strategy')}{tried}, {_text(data, 'outcome')}"
    return [*made, Line(f"↻ {_text(data, 'tool')}: {how}{after}", tone)]


def _stopped(data: Data) -> list[Line]:
    return [Line(f"✗ {_text(data, 'tool')} gets nowhere: {_text(data, 'reason')}", "bad")]


def _opened(data: Data) -> list[Line]:
    failures, recovery_s = data.get("failures"), data.get("recovery_s", 0)
    last = f"; last: {_text(data, 'cause')}" if data.get("cause") else ""
    told = f"✗ {_text(data, 'tool')} is left alone for {recovery_s:g} s: failures in a row: {failures}{last}"
    return [Line(told, "bad")]


def _closed(data: Data) -> list[Line]:
    return [Line(f"✓ {_text(data, 'tool')} works again", "good")]


def _intervened(data: Data) -> list[Line]:
    if data.get("kind") == "cut":
        kept = f"{data.get('kept', 0):,} of {data.get('bytes', 0):,} bytes are kept"
        return [Line(f"✗ {_text(data, 'of')} was too long and is cut: {kept}", "bad")]
    if steering := guidance(data):
        return [Line(f"steer: {on_one_line(steering)}", "person")]
    given = data.get("text", "")
    text = _pairs(cast("Data", given)) if isinstance(given, dict) else str(given)
    return [
        Line(
            f"{_text(data, 'kind')}{': ' if text else ''}{on_one_line(text)}",
            "quiet" if is_told_by_turns(data) else "person",
        )
    ]


def _saga(data: Data) -> list[Line]:
    made: list[Data] = data.get("calls", [])
    calls = ", ".join(f"{_text(call, 'tool')} {_text(call, 'outcome')}" for call in made)
    why = f": {_text(data, 'error')}" if data.get("error") else ""
    is_good = data.get("outcome") == "ok"
    return [
        Line(f"{'✓' if is_good else '✗'} saga {_text(data, 'outcome')}{why} ({calls})", "good" if is_good else "bad")
    ]


def _decided_by_rule(data: Data) -> list[Line]:
    outcome = _pairs(cast("Data", data.get("outcome", {})))
    return [
        Line(f"✓ decided {_text(data, 'decision')}: {on_one_line(outcome, 300)} (rule: {_text(data, 'rule')})", "good")
    ]


def _reviewed(data: Data) -> list[Line]:
    score = "" if data.get("score") is None else f" {data['score']:.2f}"
    why = _text(data, "error") or _text(data, "feedback")
    word = "approves" if data.get("approved") else "cannot review" if data.get("error") else "rejects"
    head = f"critic {_text(data, 'critic')} {word} {_text(data, 'target')}{score} ({_text(data, 'then')})"
    mark, tone = ("✓", "good") if data.get("approved") else ("✗", "bad")
    return [Line(f"{mark} {head}{f': {why}' if why else ''}", cast("Tone", tone))]


def _untold(data: Data) -> list[Line]:
    return [Line(f"✗ nobody could be told of {_text(data, 'about')}: {_text(data, 'error')}", "bad")]


def _handed_over(data: Data) -> list[Line]:
    return [Line(f"goes on in build {_text(data, 'build')} (before: {_text(data, 'before')})", "quiet")]


def _missing(data: Data) -> list[Line]:
    return [Line(_text(data, "detail"), "quiet")]


def _failed_over(data: Data) -> list[Line]:
    return [Line(f"⚠ {_text(data, 'from')} gives way to {_text(data, 'to')}: {_text(data, 'why')}", "bad")]


def _recalled(data: Data) -> list[Line]:
    if error := _text(data, "error"):
        return [Line(f"✗ nothing could be recalled: {error}", "bad")]
    items = cast("list[Data]", data.get("items", []))
    found = f"{counted(len(items), 'item')} (best {items[0]['score']:.2f})" if items else "nothing"
    tainted = sum(bool(item.get("tainted")) for item in items)
    untrusted = f", {tainted} of them untrusted" if tainted else ""
    kept = ", the same as before" if data.get("block") == "kept" else ""
    words = on_one_line(" ".join(map(str, data.get("terms", []))), 120)
    return [Line(f"recalled {found}{untrusted}{kept} for: {words}", "quiet")]


def _stored(data: Data) -> list[Line]:
    if error := _text(data, "error"):
        return [Line(f"✗ what was learnt could not be stored: {error}", "bad")]
    older = cast("list[str]", data.get("contradicts", []))
    against = f", against {counted(len(older), 'older fact')}" if older else ""
    return [Line(f"stored a {_text(data, 'kind')}: {_text(data, 'change')} {_text(data, 'id')}{against}", "good")]


_NOTE_TELLERS: dict[str, Callable[[Data], list[Line]]] = {
    "PreHydrationComplete": _hydrated,
    "KnowledgeRecalled": _recalled,
    "KnowledgeStored": _stored,
    "ContextCompacted": _compacted,
    "ApprovalRequested": _asked,
    "ApprovalResolved": _decided,
    "RecoveryTriggered": _recovered,
    "StepLimitReached": _stopped,
    "CircuitOpened": _opened,
    "ModelFailedOver": _failed_over,
    "CircuitClosed": _closed,
    "InterventionReceived": _intervened,
    "NotificationFailed": _untold,
    SAGA_ENDED: _saga,
    DECISION_GROUNDED: _decided_by_rule,
    "CritiqueEvaluated": _reviewed,
    "PastMissing": _missing,
    "BuildChanged": _handed_over,
    **SESSION_TELLERS,
    **GOAL_TELLERS,
}


def _text(data: Data, key: str) -> str:
    return on_one_line(str(data.get(key) or ""), 300)


def _by(data: Data) -> str:
    who = f" by {_text(data, 'by')}" if data.get("by") else ""
    return f"{who}: {_text(data, 'reason')}" if data.get("reason") else who


def _pairs(given: Data) -> str:
    return ", ".join(f"{key}={value}" for key, value in given.items() if value not in (None, ""))


class Narrator:
    """Tells the entries of one run in order; remembers what its calls are."""

    def __init__(self) -> None:
        self._calls: list[tuple[str, str]] = []
        self._delegates: dict[str, str] = {}
        self._dispatched_at: datetime | None = None

    def tell(self, entry: JournalEntry) -> list[Line]:
        """Return the lines of an entry; an event of a later version is told by its data."""
        if teller := _TELLERS.get(entry.event):
            return teller(self, entry)
        noted = told_note(entry)
        return [Line(on_one_line(str(entry.data)), "quiet")] if noted is None else noted

    def _started(self, entry: JournalEntry) -> list[Line]:
        task = str(entry.data.get("task", ""))  # a session has none
        lines = [Line(f"task: {on_one_line(task)}")] if task else []
        if source := entry.data.get("forked_from"):
            lines.append(
                Line(
                    f"fork of {in_full(str(source.get('workflow_id')))} at iteration {source.get('iteration')}", "quiet"
                )
            )
        return lines

    def _prepared(self, entry: JournalEntry) -> list[Line]:
        model, policy = (on_one_line(str(entry.data.get(key) or "")) for key in ("model", "policy"))
        version = on_one_line(str(entry.data.get("policy_version") or ""))
        tools = len(entry.data.get("tools") or ())
        judged_by = f"policy {policy}{' ' if version else ''}{version}"
        told = f"model {model}, {counted(tools, 'tool')}, {judged_by}{_build(entry.data)}"
        return [Line(told, "quiet")]

    def _reasoned(self, entry: JournalEntry) -> list[Line]:
        actions: list[dict[str, Any]] = entry.data.get("actions", [])
        self._calls = [(str(a.get("call_id")), call_text(a)) for a in actions if "tool" in a]
        lines = [Line(f"→ {call}", "call") for _, call in self._calls]
        if not self._calls and entry.data.get("turn", ANSWERING) == ANSWERING:
            lines = [Line(f"answers: {on_one_line(str(a.get('respond', '')))}") for a in actions]
        finish = entry.data.get("finish")
        return (
            lines
            if finish in {"stop", "tool_calls"}
            else [*lines, Line(f"the reply ended early: {on_one_line(str(finish))}", "bad")]
        )

    def _judged(self, entry: JournalEntry) -> list[Line]:
        if error := entry.data.get("error"):
            return [Line(f"✗ the gate failed: {on_one_line(str(error))}", "bad")]
        verdicts: list[dict[str, Any]] = entry.data.get("verdicts", [])
        if (about := entry.data.get("about")) in _APART:
            names = [_APART[str(about)]]
        else:
            names = self._later_names(entry.data["calls"]) if "calls" in entry.data else self._proposed_names()
        named = zip(chain(names, repeat("a call")), verdicts, strict=False)
        denied = [(name, verdict) for name, verdict in named if verdict.get("decision") != "allow"]
        if not denied:
            return [Line(f"{len(verdicts)} allowed", "quiet")]
        return [_held_back(name, verdict) for name, verdict in denied]

    def _proposed_names(self) -> list[str]:
        return [call for _, call in self._calls] or ["the answer"]

    def _later_names(self, call_ids: list[str]) -> list[str]:
        """Return the calls that are judged once more; none are named of recoveries, say."""
        names = dict(self._calls)
        return [names.get(call_id, "a call") for call_id in call_ids]

    def _dispatched(self, entry: JournalEntry) -> list[Line]:
        self._dispatched_at = entry.timestamp
        return [Line(f"{entry.data.get('tool_count', 0)} to run", "quiet")]

    def _observed(self, entry: JournalEntry) -> list[Line]:
        outcomes: list[dict[str, Any]] = entry.data.get("outcomes", [])
        took = (entry.timestamp - self._dispatched_at).total_seconds() if self._dispatched_at else 0.0
        names = dict(self._calls)
        told = [_outcome(each, names, entry.took_s.get(str(each.get("call_id")), took)) for each in outcomes]
        return told or [Line("nothing was run", "quiet")]

    def _delegation_started(self, entry: JournalEntry) -> list[Line]:
        agent = on_one_line(str(entry.data.get("agent", "")))
        self._delegates[str(entry.data.get("workflow_id"))] = agent
        return [Line(f"⇢ {agent}: {on_one_line(str(entry.data.get('task', '')))}", "call")]

    def _delegation_ended(self, entry: JournalEntry) -> list[Line]:
        child = str(entry.data.get("workflow_id"))
        reason, detail = entry.data.get("reason"), on_one_line(str(entry.data.get("detail") or ""), 300)
        told = f"{self._delegates.get(child, in_full(child))}: {reason}{': ' if detail else ''}{detail}"
        return [Line(f"✓ {told}", "good") if reason == "completed" else Line(f"✗ {told}", "bad")]

    def _terminated(self, entry: JournalEntry) -> list[Line]:
        reason, detail = entry.data.get("reason"), on_one_line(str(entry.data.get("detail") or ""), 400)
        return [Line(f"{reason}{': ' if detail else ''}{detail}", "good" if reason == "completed" else "bad")]


_APART = {PLAN: "the plan", LEARNINGS: "to store what was learnt"}
"""What a verdict is on, where it is on none of the reply's calls."""


ANSWERING = "goal_summary"
"""The one turn of a goal that is for people; what the others say is told by what comes of it."""


_TELLERS: dict[str, Callable[[Narrator, JournalEntry], list[Line]]] = {
    "Started": Narrator._started,
    "Prepared": Narrator._prepared,
    "ReasoningComplete": Narrator._reasoned,
    "PolicyEvaluated": Narrator._judged,
    "ToolsDispatched": Narrator._dispatched,
    "ObservationsCollected": Narrator._observed,
    "DelegationStarted": Narrator._delegation_started,
    "DelegationEnded": Narrator._delegation_ended,
    "Terminated": Narrator._terminated,
}


def _build(data: dict[str, Any]) -> str:
    """Return the words for the build that prepared the run, and for its loop's rules."""
    named = {"build": data.get("build"), "loop version": data.get("loop_version")}
    return "".join(f", {name} {on_one_line(str(value))}" for name, value in named.items() if value)


def call_text(action: dict[str, Any]) -> str:
    """Return a call that the model proposed, with its first argument, on one line."""
    call = ToolCall(call_id="", name=str(action.get("tool")), arguments=action.get("arguments") or {})
    return on_one_line(call_summary(call, None))


def _held_back(name: str, verdict: dict[str, Any]) -> Line:
    decision = verdict.get("decision")
    if decision == "approval":
        return Line(f"? {name} needs a person's yes: {_reason(verdict)}", "person")
    refusal = "denied" if decision == "deny" else "refused as invalid"
    return Line(f"✗ {refusal} {name}: {_reason(verdict)}", "bad")


def _reason(verdict: dict[str, Any]) -> str:
    return on_one_line(str(verdict.get("reason", "")))


def _outcome(outcome: dict[str, Any], names: dict[str, str], took_s: float) -> Line:
    call_id = str(outcome.get("call_id"))
    name = names.get(call_id) or on_one_line(str(outcome.get("tool") or call_id))
    if outcome.get("outcome") == "ok":
        return Line(f"✓ {name} ({took_s:.2f} s)", "good")
    became, error = (on_one_line(str(outcome.get(key) or "")) for key in ("outcome", "error"))
    return Line(f"✗ {name}: {became}{', ' if error else ''}{error} ({took_s:.2f} s)", "bad")
