"""Renders journal entries as lines for people: runs, goals and sessions."""

from collections.abc import Callable, Mapping
from datetime import datetime
from itertools import chain, repeat
from typing import Any, cast

from orga.client.cli.shown.decisions import held_call_text
from orga.client.cli.shown.text import StyledLine, Tone, count_text, on_one_line
from orga.workflows.decisions.result import call_summary
from orga.workflows.types.messages import ToolCall
from orga.workflows.types.sessions.result import TURN_ENDED, TURN_STARTED
from orga.workflows.types.status import JournalEntry
from orga.workflows.types.text import full_field_text
from orga.workflows.types.tool_calls.decision import DECISION_GROUNDED
from orga.workflows.types.tool_calls.gate import LEARNINGS, PLAN
from orga.workflows.types.tool_calls.loop_tools import SAGA_ENDED

_HIDDEN_KINDS = {"await_turn", "send"}
"""Interventions that the lines of a turn show. Waiting for a turn changes nothing."""


Data = dict[str, Any]


def steering_text(data: Data) -> str:
    """Return the text of an intervention that steers the current turn; "" for another intervention."""
    message = data.get("text") if data.get("kind") == "send" else None
    fields = cast("Data", message) if isinstance(message, dict) else {}
    return str(fields.get("text", "")) if fields.get("when_busy") == "steer" else ""


def is_shown_by_turns(data: Data) -> bool:
    """Return whether other entries show this intervention."""
    return data.get("kind") in _HIDDEN_KINDS and not steering_text(data)


def _turn_started_lines(data: Data) -> list[StyledLine]:
    return [StyledLine(f"turn {data.get('turn')}: {on_one_line(str(data.get('message', '')), 300)}", "person")]


def _turn_ended_lines(data: Data) -> list[StyledLine]:
    reason, detail = on_one_line(str(data.get("reason"))), on_one_line(str(data.get("detail") or ""), 300)
    text = f"turn {data.get('turn')} {reason}{': ' if detail else ''}{detail}"
    return [StyledLine(text, "good" if reason == "completed" else "bad")]


SESSION_RENDERERS: dict[str, Callable[[Data], list[StyledLine]]] = {
    TURN_STARTED: _turn_started_lines,
    TURN_ENDED: _turn_ended_lines,
}


def _plan_lines(data: Data) -> list[StyledLine]:
    steps: list[Data] = data.get("steps", [])
    named = f" of pipeline {_goal_text(data, 'pipeline')}" if data.get("pipeline") else ""
    lines = [StyledLine(f"plan{named}: {count_text(len(steps), 'step')}")]
    return lines + [
        StyledLine(
            f"  {_goal_text(step, 'id')} {_goal_text(step, 'skill')}: "
            f"{_goal_text(step, 'goal')}{_dependencies_text(step)}"
        )
        for step in steps
    ]


def _dependencies_text(step: Data) -> str:
    needs: list[Any] = step.get("depends_on") or []
    return f" (after {on_one_line(', '.join(map(str, needs)))})" if needs else ""


def _step_executed_lines(data: Data) -> list[StyledLine]:
    is_ok = data.get("status") == "ok"
    why = f": {_goal_text(data, 'error')}" if data.get("error") else ""
    mark = "✓" if is_ok else "✗"
    return [
        StyledLine(f"{mark} {_goal_text(data, 'step')} {_goal_text(data, 'status')}{why}", "good" if is_ok else "bad")
    ]


def _step_evaluated_lines(data: Data) -> list[StyledLine]:
    text = f"{_goal_text(data, 'step')} scored {data.get('score')}: {_goal_text(data, 'quality')}"
    return [StyledLine(f"  {text}", "bad" if data.get("quality") == "failed" else "good")]


def _goal_decision_lines(data: Data) -> list[StyledLine]:
    sure = f", confidence {data['confidence']}" if "confidence" in data else ""
    why = f": {_goal_text(data, 'reason')}" if data.get("reason") else ""
    return [StyledLine(f"decides ({_goal_text(data, 'by')}{sure}): {_goal_text(data, 'action')}{why}")]


def _question_lines(data: Data) -> list[StyledLine]:
    return [StyledLine(f"? asks: {_goal_text(data, 'question')}   answer it: orga answer ID TEXT", "person")]


def _answer_lines(data: Data) -> list[StyledLine]:
    by = f" by {_goal_text(data, 'by')}" if data.get("by") else ""
    return [StyledLine(f"answered{by}: {_goal_text(data, 'answer')}", "person")]


def _step_overridden_lines(data: Data) -> list[StyledLine]:
    return [StyledLine(f"a person set the tool of {_goal_text(data, 'step')} to {_goal_text(data, 'skill')}", "person")]


def _memory_lines(data: Data) -> list[StyledLine]:
    lost = ", ".join(map(str, data.get("lost") or ()))
    why = f": {on_one_line(lost)} would be lost" if lost else ""
    how = "" if data.get("taken") else f", kept as it was{why}"
    return [StyledLine(f"memory: {data.get('before')} bytes to {data.get('after')}{how}")]


def _delivered_lines(data: Data) -> list[StyledLine]:
    return [StyledLine(f"✓ delivered to {_goal_text(data, 'name')} ({_goal_text(data, 'kind')})", "good")]


def _delivery_failed_lines(data: Data) -> list[StyledLine]:
    where = f"{_goal_text(data, 'name')} ({_goal_text(data, 'kind')})"
    return [StyledLine(f"✗ not delivered to {where}: {_goal_text(data, 'error')}", "bad")]


def _goal_text(data: Data, key: str) -> str:
    return on_one_line(str(data.get(key, "")))


GOAL_RENDERERS: Mapping[str, Callable[[Data], list[StyledLine]]] = {
    "PlanMade": _plan_lines,
    "PlanAdjusted": _plan_lines,
    "StepExecuted": _step_executed_lines,
    "StepEvaluated": _step_evaluated_lines,
    "DecisionMade": _goal_decision_lines,
    "QuestionAsked": _question_lines,
    "QuestionAnswered": _answer_lines,
    "MemoryCompressed": _memory_lines,
    "StepOverridden": _step_overridden_lines,
    "Delivered": _delivered_lines,
    "DeliveryFailed": _delivery_failed_lines,
}


def event_lines(entry: JournalEntry) -> list[StyledLine] | None:
    """Return the lines of an entry, or None if no renderer is known for its event."""
    render = _EVENT_RENDERERS.get(entry.event)
    return render(entry.data) if render else None


def _hydration_lines(data: Data) -> list[StyledLine]:
    counts = [f"{data[key]} {key}" for key in ("resolved", "failed", "unresolvable") if data.get(key)]
    lines = [StyledLine(f"looked up {count_text(data.get('references_found', 0), 'reference')}: {', '.join(counts)}")]
    references: list[Data] = data.get("references", [])
    lacking = [reference for reference in references if reference.get("status") != "resolved"]
    return lines + [StyledLine(f"✗ {_text(lack, 'value')}: {_text(lack, 'why')}", "bad") for lack in lacking]


def _compaction_lines(data: Data) -> list[StyledLine]:
    lines: list[str] = []
    if dropped := data.get("messages_dropped"):
        lines.append(f"{count_text(dropped, 'older message')} left out of the context")
    if masked := data.get("messages_masked"):
        lines.append(f"{count_text(masked, 'older result')} left out of the context")
    if replaced := data.get("messages_replaced"):
        lines.append(f"{count_text(replaced, 'message')} left out: refused by a content filter of the model's provider")
    if cut := cast("list[Any]", data.get("fields_cut") or []):
        lines.append(on_one_line(f"cut to be carried on: {', '.join(map(str, cut))}", 300))
    how = {"model": ", summed up by the model", "fallback": ", their calls counted"}
    tone = "bad" if data.get("messages_replaced") else "quiet"
    return [StyledLine(" and ".join(lines) + how.get(str(data.get("summary")), ""), tone)]


def _approval_requested_lines(data: Data) -> list[StyledLine]:
    if data.get("kind") == "call":
        return [StyledLine(f"? {_text(data, 'id')}: {held_call_text(data)}", "person")]
    what = f"{_text(data, 'kind')} {_text(data, 'id')}"
    return [StyledLine(f"? waits for a person ({what}): {_text(data, 'question')}", "person")]


def _approval_resolved_lines(data: Data) -> list[StyledLine]:
    if data.get("kind") == "call":
        word, by = ("approved" if data.get("approved") else "denied"), data.get("approver")
        return [
            StyledLine(f"{_text(data, 'tool')} {word}{_by_text({**data, 'by': by})} ({_text(data, 'id')})", "person")
        ]
    if data.get("choice") == "none":
        return [StyledLine(f"{_text(data, 'id')} waits no more", "quiet")]
    return [StyledLine(f"{_text(data, 'id')}: {_text(data, 'choice')}{_by_text(data)}", "person")]


def _recovery_lines(data: Data) -> list[StyledLine]:
    tone: Tone = "good" if data.get("outcome") == "ok" else "plain"
    after = f", after: {_text(data, 'error')}" if data.get("error") else ""
    calls: list[Data] = data.get("calls", [])
    made = [StyledLine(f"  ↻ {_text(call, 'tool')} instead: {_text(call, 'outcome')}") for call in calls]
    tried = f" ({data['attempts']} attempts)" if data.get("attempts") else ""
    how = f"{_text(data, 'strategy')}{tried}, {_text(data, 'outcome')}"
    return [*made, StyledLine(f"↻ {_text(data, 'tool')}: {how}{after}", tone)]


def _repeated_call_lines(data: Data) -> list[StyledLine]:
    return [StyledLine(f"✗ {_text(data, 'tool')} gets nowhere: {_text(data, 'reason')}", "bad")]


def _circuit_opened_lines(data: Data) -> list[StyledLine]:
    failures, recovery_s = data.get("failures"), data.get("recovery_s", 0)
    last = f"; last: {_text(data, 'cause')}" if data.get("cause") else ""
    text = f"✗ {_text(data, 'tool')} is left alone for {recovery_s:g} s: failures in a row: {failures}{last}"
    return [StyledLine(text, "bad")]


def _circuit_closed_lines(data: Data) -> list[StyledLine]:
    return [StyledLine(f"✓ {_text(data, 'tool')} works again", "good")]


def _intervention_lines(data: Data) -> list[StyledLine]:
    if data.get("kind") == "cut":
        kept = f"{data.get('kept', 0):,} of {data.get('bytes', 0):,} bytes are kept"
        return [StyledLine(f"✗ {_text(data, 'of')} was too long and is cut: {kept}", "bad")]
    if steering := steering_text(data):
        return [StyledLine(f"steer: {on_one_line(steering)}", "person")]
    given = data.get("text", "")
    text = _pairs_text(cast("Data", given)) if isinstance(given, dict) else str(given)
    return [
        StyledLine(
            f"{_text(data, 'kind')}{': ' if text else ''}{on_one_line(text)}",
            "quiet" if is_shown_by_turns(data) else "person",
        )
    ]


def _saga_lines(data: Data) -> list[StyledLine]:
    made: list[Data] = data.get("calls", [])
    calls = ", ".join(f"{_text(call, 'tool')} {_text(call, 'outcome')}" for call in made)
    why = f": {_text(data, 'error')}" if data.get("error") else ""
    is_good = data.get("outcome") == "ok"
    return [
        StyledLine(
            f"{'✓' if is_good else '✗'} saga {_text(data, 'outcome')}{why} ({calls})", "good" if is_good else "bad"
        )
    ]


def _grounded_decision_lines(data: Data) -> list[StyledLine]:
    outcome = _pairs_text(cast("Data", data.get("outcome", {})))
    return [
        StyledLine(
            f"✓ decided {_text(data, 'decision')}: {on_one_line(outcome, 300)} (rule: {_text(data, 'rule')})", "good"
        )
    ]


def _critique_lines(data: Data) -> list[StyledLine]:
    score = "" if data.get("score") is None else f" {data['score']:.2f}"
    why = _text(data, "error") or _text(data, "feedback")
    word = "approves" if data.get("approved") else "cannot review" if data.get("error") else "rejects"
    head = f"critic {_text(data, 'critic')} {word} {_text(data, 'target')}{score} ({_text(data, 'then')})"
    mark, tone = ("✓", "good") if data.get("approved") else ("✗", "bad")
    return [StyledLine(f"{mark} {head}{f': {why}' if why else ''}", cast("Tone", tone))]


def _notification_failed_lines(data: Data) -> list[StyledLine]:
    return [StyledLine(f"✗ nobody could be notified of {_text(data, 'about')}: {_text(data, 'error')}", "bad")]


def _build_changed_lines(data: Data) -> list[StyledLine]:
    return [StyledLine(f"goes on in build {_text(data, 'build')} (before: {_text(data, 'before')})", "quiet")]


def _missing_past_lines(data: Data) -> list[StyledLine]:
    return [StyledLine(_text(data, "detail"), "quiet")]


def _failover_lines(data: Data) -> list[StyledLine]:
    return [StyledLine(f"⚠ {_text(data, 'from')} gives way to {_text(data, 'to')}: {_text(data, 'why')}", "bad")]


def _recall_lines(data: Data) -> list[StyledLine]:
    if error := _text(data, "error"):
        return [StyledLine(f"✗ nothing could be recalled: {error}", "bad")]
    items = cast("list[Data]", data.get("items", []))
    found = f"{count_text(len(items), 'item')} (best {items[0]['score']:.2f})" if items else "nothing"
    tainted = sum(bool(item.get("tainted")) for item in items)
    untrusted = f", {tainted} of them untrusted" if tainted else ""
    kept = ", the same as before" if data.get("block") == "kept" else ""
    words = on_one_line(" ".join(map(str, data.get("terms", []))), 120)
    return [StyledLine(f"recalled {found}{untrusted}{kept} for: {words}", "quiet")]


def _knowledge_stored_lines(data: Data) -> list[StyledLine]:
    if error := _text(data, "error"):
        return [StyledLine(f"✗ what was learnt could not be stored: {error}", "bad")]
    older = cast("list[str]", data.get("contradicts", []))
    against = f", against {count_text(len(older), 'older fact')}" if older else ""
    return [StyledLine(f"stored a {_text(data, 'kind')}: {_text(data, 'change')} {_text(data, 'id')}{against}", "good")]


_EVENT_RENDERERS: dict[str, Callable[[Data], list[StyledLine]]] = {
    "PreHydrationComplete": _hydration_lines,
    "KnowledgeRecalled": _recall_lines,
    "KnowledgeStored": _knowledge_stored_lines,
    "ContextCompacted": _compaction_lines,
    "ApprovalRequested": _approval_requested_lines,
    "ApprovalResolved": _approval_resolved_lines,
    "RecoveryTriggered": _recovery_lines,
    "StepLimitReached": _repeated_call_lines,
    "CircuitOpened": _circuit_opened_lines,
    "ModelFailedOver": _failover_lines,
    "CircuitClosed": _circuit_closed_lines,
    "InterventionReceived": _intervention_lines,
    "NotificationFailed": _notification_failed_lines,
    SAGA_ENDED: _saga_lines,
    DECISION_GROUNDED: _grounded_decision_lines,
    "CritiqueEvaluated": _critique_lines,
    "PastMissing": _missing_past_lines,
    "BuildChanged": _build_changed_lines,
    **SESSION_RENDERERS,
    **GOAL_RENDERERS,
}


def _text(data: Data, key: str) -> str:
    return on_one_line(str(data.get(key) or ""), 300)


def _by_text(data: Data) -> str:
    who = f" by {_text(data, 'by')}" if data.get("by") else ""
    return f"{who}: {_text(data, 'reason')}" if data.get("reason") else who


def _pairs_text(given: Data) -> str:
    return ", ".join(f"{key}={value}" for key, value in given.items() if value not in (None, ""))


class Narrator:
    """Renders the entries of one run in order. It remembers the run's calls and delegates."""

    def __init__(self) -> None:
        self._calls: list[tuple[str, str]] = []
        self._delegates: dict[str, str] = {}
        self._dispatched_at: datetime | None = None

    def render(self, entry: JournalEntry) -> list[StyledLine]:
        """Return the lines of an entry. The event of a later version is shown as its raw data."""
        if render := _ENTRY_RENDERERS.get(entry.event):
            return render(self, entry)
        lines = event_lines(entry)
        return [StyledLine(on_one_line(str(entry.data)), "quiet")] if lines is None else lines

    def _started_lines(self, entry: JournalEntry) -> list[StyledLine]:
        task = str(entry.data.get("task", ""))  # a session has none
        lines = [StyledLine(f"task: {on_one_line(task)}")] if task else []
        if source := entry.data.get("forked_from"):
            lines.append(
                StyledLine(
                    f"fork of {full_field_text(str(source.get('workflow_id')))} at iteration {source.get('iteration')}",
                    "quiet",
                )
            )
        return lines

    def _prepared_lines(self, entry: JournalEntry) -> list[StyledLine]:
        model, policy = (on_one_line(str(entry.data.get(key) or "")) for key in ("model", "policy"))
        version = on_one_line(str(entry.data.get("policy_version") or ""))
        tools = len(entry.data.get("tools") or ())
        judged_by = f"policy {policy}{' ' if version else ''}{version}"
        text = f"model {model}, {count_text(tools, 'tool')}, {judged_by}{_build_text(entry.data)}"
        return [StyledLine(text, "quiet")]

    def _reasoning_lines(self, entry: JournalEntry) -> list[StyledLine]:
        actions: list[dict[str, Any]] = entry.data.get("actions", [])
        self._calls = [(str(a.get("call_id")), call_text(a)) for a in actions if "tool" in a]
        lines = [StyledLine(f"→ {call}", "call") for _, call in self._calls]
        if not self._calls and entry.data.get("turn", ANSWER_PROMPT) == ANSWER_PROMPT:
            lines = [StyledLine(f"answers: {on_one_line(str(a.get('respond', '')))}") for a in actions]
        finish = entry.data.get("finish")
        return (
            lines
            if finish in {"stop", "tool_calls"}
            else [*lines, StyledLine(f"the reply ended early: {on_one_line(str(finish))}", "bad")]
        )

    def _verdict_lines(self, entry: JournalEntry) -> list[StyledLine]:
        if error := entry.data.get("error"):
            return [StyledLine(f"✗ the gate failed: {on_one_line(str(error))}", "bad")]
        verdicts: list[dict[str, Any]] = entry.data.get("verdicts", [])
        if (about := entry.data.get("about")) in _SEPARATE_VERDICTS:
            names = [_SEPARATE_VERDICTS[str(about)]]
        else:
            names = self._later_names(entry.data["calls"]) if "calls" in entry.data else self._proposed_names()
        named = zip(chain(names, repeat("a call")), verdicts, strict=False)
        denied = [(name, verdict) for name, verdict in named if verdict.get("decision") != "allow"]
        if not denied:
            return [StyledLine(f"{len(verdicts)} allowed", "quiet")]
        return [_refusal_line(name, verdict) for name, verdict in denied]

    def _proposed_names(self) -> list[str]:
        return [call for _, call in self._calls] or ["the answer"]

    def _later_names(self, call_ids: list[str]) -> list[str]:
        """Return the calls that are judged again. A call of a recovery, for example, has no name here."""
        names = dict(self._calls)
        return [names.get(call_id, "a call") for call_id in call_ids]

    def _dispatch_lines(self, entry: JournalEntry) -> list[StyledLine]:
        self._dispatched_at = entry.timestamp
        return [StyledLine(f"{entry.data.get('tool_count', 0)} to run", "quiet")]

    def _outcome_lines(self, entry: JournalEntry) -> list[StyledLine]:
        outcomes: list[dict[str, Any]] = entry.data.get("outcomes", [])
        took = (entry.timestamp - self._dispatched_at).total_seconds() if self._dispatched_at else 0.0
        names = dict(self._calls)
        lines = [_outcome_line(each, names, entry.took_s.get(str(each.get("call_id")), took)) for each in outcomes]
        return lines or [StyledLine("nothing was run", "quiet")]

    def _delegation_started_lines(self, entry: JournalEntry) -> list[StyledLine]:
        agent = on_one_line(str(entry.data.get("agent", "")))
        self._delegates[str(entry.data.get("workflow_id"))] = agent
        return [StyledLine(f"⇢ {agent}: {on_one_line(str(entry.data.get('task', '')))}", "call")]

    def _delegation_ended_lines(self, entry: JournalEntry) -> list[StyledLine]:
        child = str(entry.data.get("workflow_id"))
        reason, detail = entry.data.get("reason"), on_one_line(str(entry.data.get("detail") or ""), 300)
        text = f"{self._delegates.get(child, full_field_text(child))}: {reason}{': ' if detail else ''}{detail}"
        return [StyledLine(f"✓ {text}", "good") if reason == "completed" else StyledLine(f"✗ {text}", "bad")]

    def _terminated_lines(self, entry: JournalEntry) -> list[StyledLine]:
        reason, detail = entry.data.get("reason"), on_one_line(str(entry.data.get("detail") or ""), 400)
        return [StyledLine(f"{reason}{': ' if detail else ''}{detail}", "good" if reason == "completed" else "bad")]


_SEPARATE_VERDICTS = {PLAN: "the plan", LEARNINGS: "to store what was learnt"}
"""Names of what the gate judges if it judges none of the reply's calls."""


ANSWER_PROMPT = "goal_summary"
"""The one prompt of a goal whose answer is for people. Later entries show the effect of the other answers."""


_ENTRY_RENDERERS: dict[str, Callable[[Narrator, JournalEntry], list[StyledLine]]] = {
    "Started": Narrator._started_lines,
    "Prepared": Narrator._prepared_lines,
    "ReasoningComplete": Narrator._reasoning_lines,
    "PolicyEvaluated": Narrator._verdict_lines,
    "ToolsDispatched": Narrator._dispatch_lines,
    "ObservationsCollected": Narrator._outcome_lines,
    "DelegationStarted": Narrator._delegation_started_lines,
    "DelegationEnded": Narrator._delegation_ended_lines,
    "Terminated": Narrator._terminated_lines,
}


def _build_text(data: dict[str, Any]) -> str:
    """Return the build that prepared the run, and the version of its loop."""
    named = {"build": data.get("build"), "loop version": data.get("loop_version")}
    return "".join(f", {name} {on_one_line(str(value))}" for name, value in named.items() if value)


def call_text(action: dict[str, Any]) -> str:
    """Return a call that the model proposed, with its first argument, on one line."""
    call = ToolCall(call_id="", name=str(action.get("tool")), arguments=action.get("arguments") or {})
    return on_one_line(call_summary(call, None))


def _refusal_line(name: str, verdict: dict[str, Any]) -> StyledLine:
    decision = verdict.get("decision")
    if decision == "approval":
        return StyledLine(f"? {name} needs a person's yes: {_reason_text(verdict)}", "person")
    refusal = "denied" if decision == "deny" else "refused as invalid"
    return StyledLine(f"✗ {refusal} {name}: {_reason_text(verdict)}", "bad")


def _reason_text(verdict: dict[str, Any]) -> str:
    return on_one_line(str(verdict.get("reason", "")))


def _outcome_line(outcome: dict[str, Any], names: dict[str, str], took_s: float) -> StyledLine:
    call_id = str(outcome.get("call_id"))
    name = names.get(call_id) or on_one_line(str(outcome.get("tool") or call_id))
    if outcome.get("outcome") == "ok":
        return StyledLine(f"✓ {name} ({took_s:.2f} s)", "good")
    became, error = (on_one_line(str(outcome.get(key) or "")) for key in ("outcome", "error"))
    return StyledLine(f"✗ {name}: {became}{', ' if error else ''}{error} ({took_s:.2f} s)", "bad")
