"""The journal in words: each entry as lines that a person reads."""

from collections.abc import Callable
from datetime import datetime
from itertools import chain, repeat
from typing import Any

from orga.client.cli.counting import counted
from orga.client.cli.line import Line
from orga.client.cli.narrated_notes import told_note
from orga.client.cli.terminal_text import on_one_line
from orga.workflows.decisions.result import call_summary
from orga.workflows.types.gate import LEARNINGS, PLAN
from orga.workflows.types.messages import ToolCall
from orga.workflows.types.status import JournalEntry
from orga.workflows.types.text import in_full


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
