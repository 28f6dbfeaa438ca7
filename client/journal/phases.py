"""Folds a goal's phases from its journal: replies, scores, decisions and durations."""

from collections.abc import AsyncIterable, Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from orga.workflows.decisions.goals.replies import parsed_memory
from orga.workflows.types.goals.requests import goal_reply_object
from orga.workflows.types.status import JournalEntry
from orga.workflows.types.tool_calls.gate import PLAN

ASK = "ask"

_PROMPT_PHASES = {
    "goal_plan": "plan",
    "goal_input": "execute",
    "goal_evaluate": "evaluate",
    "goal_decide": "decide",
    "goal_compress": "compress",
    "goal_summary": "summarise",
}

_RESULT_EVENTS = {
    "plan": {"PlanMade"},
    "evaluate": {"StepEvaluated"},
    "decide": {"DecisionMade"},
    "compress": {"MemoryCompressed"},
}
"""The entries that show that the reply of a phase was used."""

OVERRIDE = "override_step"

_GUIDANCE = {"steer", "add_context", OVERRIDE}
_NORMAL_FINISH = {"stop", "tool_calls"}

Data = dict[str, Any]


@dataclass
class Phase:
    turn: int
    phase: str
    """plan, execute, evaluate, decide, ask, compress or summarise."""
    ended_at: datetime
    duration_s: float
    """Seconds since the end of the previous phase."""
    reply: list[Data] = field(default_factory=list[Data])
    """The reply: calls, or a text under `respond`."""
    usage: Data = field(default_factory=dict[str, Any])
    cost_usd: float | None = None
    plan: list[Data] = field(default_factory=list[Data])
    """The open steps after this phase."""
    executed: list[Data] = field(default_factory=list[Data])
    evaluated: list[Data] = field(default_factory=list[Data])
    decision: Data | None = None
    prompt: str = ""
    """The digest of the prompt, which `orga steps --prompt` rebuilds. Empty if no model was called."""
    memory: str = ""
    """The goal's memory in the reply, if it has one."""
    kept: str = ""
    """The goal's memory after this phase."""
    compressed: Data | None = None
    question: Data | None = None
    answer: Data | None = None
    errors: list[str] = field(default_factory=list[str])
    overridden: list[Data] = field(default_factory=list[Data])
    """Steps that people have added meanwhile."""
    guidance: list[Data] = field(default_factory=list[Data])
    """Guidance by people since the previous turn. `refused` gives the reason if it could not be used."""
    repaired: bool = False


@dataclass
class GoalPhases:
    goal: str = ""
    phases: list[Phase] = field(default_factory=list[Phase])
    ending: Data | None = None
    """None for a live goal."""


async def goal_phases(journal: AsyncIterable[JournalEntry]) -> GoalPhases:
    """Return the phases of the goal with this journal."""
    fold = _PhaseFold()
    async for entry in journal:
        if not entry.run:  # entries of delegated runs belong to no phase
            fold.feed(entry)
    return fold.found


class _PhaseFold:
    def __init__(self) -> None:
        self.found = GoalPhases()
        self._latest_end: datetime | None = None
        self._phase_events: set[str] = set()
        """Events of the latest phase."""
        self._guidance: list[tuple[int, Data]] = []
        """Guidance, with the turn before which it came."""
        self._unanswered: list[Data] = []
        """The guidance that may still be refused."""
        self._kept = ""

    def feed(self, entry: JournalEntry) -> None:
        if entry.event == "Started":
            self.found.goal = str(entry.data.get("task", ""))
        elif entry.event == "InterventionReceived":
            if entry.data.get("kind") in _GUIDANCE:
                self._guidance.append((entry.iteration, guidance := dict(entry.data)))
                self._unanswered.append(guidance)
            return
        elif entry.event == "Terminated":
            self.found.ending = {key: entry.data.get(key, "") for key in ("reason", "detail")}
            return
        elif entry.event == "ReasoningComplete":
            self._close_phase(str(entry.data.get("turn")))
            self._open_phase(entry, _PROMPT_PHASES.get(str(entry.data.get("turn")), "other"))
            self._add_reply(entry.data)
        elif entry.event == "QuestionAsked":
            self._open_phase(entry, ASK)
        elif entry.event == "PlanMade" and "pipeline" in entry.data:
            self._open_phase(entry, "plan")  # no model was called for this plan
        self._note_refusal(entry)
        if self.found.phases:
            self._add_entry(entry)
        self._latest_end = entry.timestamp

    def _note_refusal(self, entry: JournalEntry) -> None:
        """Mark guidance as refused. Every override gets an answer in order, other guidance only if it is refused."""
        kind = {"StepOverridden": OVERRIDE, "InterventionRefused": entry.data.get("kind")}.get(entry.event)
        asked = [each for each in self._unanswered if each["kind"] == kind]
        if not asked:
            return
        answered = asked[0] if kind == OVERRIDE else asked[-1]
        self._unanswered = [each for each in self._unanswered if each is not answered]
        if entry.event == "InterventionRefused":
            answered["refused"] = str(entry.data.get("reason", ""))

    def _open_phase(self, entry: JournalEntry, name: str) -> None:
        phase = Phase(entry.iteration, name, entry.timestamp, 0.0)
        self._latest_end = self._latest_end or entry.timestamp
        phase.duration_s = (entry.timestamp - self._latest_end).total_seconds()
        if name != ASK:
            phase.guidance = [given for before, given in self._guidance if before < entry.iteration]
            self._guidance = [(before, given) for before, given in self._guidance if before >= entry.iteration]
        self.found.phases.append(phase)
        self._phase_events = set()

    def _close_phase(self, next_turn: str) -> None:
        """Note on the previous phase that its reply was not used, if it was asked again or given up."""
        phase = self.found.phases[-1] if self.found.phases else None
        wanted = _RESULT_EVENTS.get(phase.phase, set()) if phase else set[str]()
        if phase is None or not wanted or wanted & self._phase_events:
            return
        why = _reply_object(phase).get("error") if phase.phase == "plan" else None
        again = ", and was asked for again" if _PROMPT_PHASES.get(next_turn) == phase.phase else ""
        phase.errors.append(f"no plan: {why}" if why else f"the reply was not used{again}")

    def _add_reply(self, data: Data) -> None:
        phase = self.found.phases[-1]
        phase.reply, phase.usage = data.get("actions", []), data.get("usage", {})
        phase.cost_usd, phase.repaired = data.get("cost_usd"), bool(data.get("repaired"))
        phase.prompt = str(data.get("prompt", ""))
        phase.memory = parsed_memory(_reply_object(phase), "") if phase.phase in {"plan", "evaluate", "decide"} else ""
        if data.get("finish") not in _NORMAL_FINISH:
            phase.errors.append(f"the reply ended early: {data.get('finish')}")

    def _add_entry(self, entry: JournalEntry) -> None:
        phase = self.found.phases[-1]
        phase.duration_s += (entry.timestamp - phase.ended_at).total_seconds()
        phase.ended_at = entry.timestamp
        self._phase_events.add(entry.event)
        phase.kept = self._kept = _current_memory(phase, entry, self._kept)
        if add := _HANDLERS.get(entry.event):
            add(phase, entry.data)


def _current_memory(phase: Phase, entry: JournalEntry, before: str) -> str:
    """Return the memory after an entry. A reply counts once it was used, a compressed memory once it was accepted."""
    is_used = entry.event in _RESULT_EVENTS.get(phase.phase, ()) and entry.data.get("by") not in {"rule", "operator"}
    is_taken = entry.data.get("taken", True) if entry.event == "MemoryCompressed" else True
    return parsed_memory(_reply_object(phase), before) if is_used and is_taken else before


def _reply_object(phase: Phase) -> Data:
    """Return the reply as a JSON object, or an empty one if it is none."""
    try:
        text = "".join(str(action.get("respond", "")) for action in phase.reply)
        return goal_reply_object(next((turn for turn, name in _PROMPT_PHASES.items() if name == phase.phase), ""), text)
    except ValueError:
        return {}


def _set_plan(phase: Phase, data: Data) -> None:
    phase.plan = data.get("steps", [])


def _add_executed_step(phase: Phase, data: Data) -> None:
    phase.executed.append(data)


def _add_override(phase: Phase, data: Data) -> None:
    phase.overridden.append(data)


def _add_evaluation(phase: Phase, data: Data) -> None:
    phase.evaluated.append(data)


def _set_decision(phase: Phase, data: Data) -> None:
    phase.decision = data


def _set_compression(phase: Phase, data: Data) -> None:
    phase.compressed = data


def _set_question(phase: Phase, data: Data) -> None:
    phase.question = data


def _set_answer(phase: Phase, data: Data) -> None:
    phase.answer = data


def _add_gate_errors(phase: Phase, data: Data) -> None:
    if error := data.get("error"):
        phase.errors.append(f"the gate failed: {error}")
    if data.get("about") == PLAN:
        denied = (verdict for verdict in data.get("verdicts", ()) if verdict.get("decision") == "deny")
        phase.errors += [f"plan denied: {verdict.get('reason', '')}" for verdict in denied]


_HANDLERS: dict[str, Callable[[Phase, Data], None]] = {
    "PlanMade": _set_plan,
    "PlanAdjusted": _set_plan,
    "StepExecuted": _add_executed_step,
    "StepOverridden": _add_override,
    "StepEvaluated": _add_evaluation,
    "DecisionMade": _set_decision,
    "MemoryCompressed": _set_compression,
    "QuestionAsked": _set_question,
    "QuestionAnswered": _set_answer,
    "PolicyEvaluated": _add_gate_errors,
}
