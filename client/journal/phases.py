"""Folds the journal of a goal to its phases, with their replies, scores, decisions and durations.

Only `orga steps` and the demo show these phases, which are the whole past of a goal. `RunView` keeps what is current.
"""

from collections.abc import AsyncIterable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, NamedTuple

from pydantic import ConfigDict

from orga.client.journal import event_types as on
from orga.client.journal.event_types import JournalEvent
from orga.client.journal.run_view import RunView
from orga.workflows.decisions.goals.replies import parsed_memory
from orga.workflows.types.goals.requests import goal_reply_object
from orga.workflows.types.models.usage import Usage
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

_RESULT_EVENTS: dict[str, type[JournalEvent]] = {
    "plan": on.PlanMade,
    "evaluate": on.StepEvaluated,
    "decide": on.DecisionMade,
    "compress": on.MemoryCompressed,
}
"""The event that shows that the reply of a phase was used."""

OVERRIDE = "override_step"

_GUIDANCE = {"steer", "add_context", OVERRIDE}
_NORMAL_FINISH = {"stop", "tool_calls"}


class Guidance(on.InterventionReceived):
    """Guidance by a person. A later entry may show that the run refused it, and then `refused` is set."""

    model_config = ConfigDict(frozen=False)


@dataclass
class Phase:
    turn: int
    """The iteration in which the phase began."""
    phase: str
    """plan, execute, evaluate, decide, ask, compress or summarise."""
    ended_at: datetime
    duration_s: float
    """Seconds since the end of the previous phase."""
    reply: tuple[on.RecordedAction, ...] = ()
    usage: Usage = field(default_factory=Usage)
    cost_usd: on.Number | None = None
    plan: tuple[on.RecordedStep, ...] = ()
    """The open steps after this phase."""
    executed: list[on.StepExecuted] = field(default_factory=list[on.StepExecuted])
    evaluated: list[on.StepEvaluated] = field(default_factory=list[on.StepEvaluated])
    decision: on.DecisionMade | None = None
    prompt: str = ""
    """The digest of the prompt, which `orga steps --prompt` rebuilds. Empty if no model was called."""
    memory: str = ""
    """The goal's memory in the reply, if the reply has one."""
    kept: str = ""
    """The goal's memory after this phase."""
    compressed: on.MemoryCompressed | None = None
    question: on.QuestionAsked | None = None
    answer: on.QuestionAnswered | None = None
    errors: list[str] = field(default_factory=list[str])
    overridden: list[on.StepOverridden] = field(default_factory=list[on.StepOverridden])
    """Steps that people have replaced or added during this phase."""
    guidance: list[Guidance] = field(default_factory=list[Guidance])
    """Guidance by people since the previous prompt."""
    repaired: bool = False

    @property
    def reply_text(self) -> str:
        return "".join(action.respond for action in self.reply)

    def add(self, event: JournalEvent) -> None:
        match event:
            case on.PlanMade() | on.PlanAdjusted():
                self.plan = event.steps
            case on.StepExecuted():
                self.executed.append(event)
            case on.StepOverridden():
                self.overridden.append(event)
            case on.StepEvaluated():
                self.evaluated.append(event)
            case on.DecisionMade():
                self.decision = event
            case on.MemoryCompressed():
                self.compressed = event
            case on.QuestionAsked():
                self.question = event
            case on.QuestionAnswered():
                self.answer = event
            case on.PolicyEvaluated():
                self.errors += [f"the gate failed: {event.error}"] if event.error else []
                denied = [verdict for verdict in event.verdicts if verdict.decision == "deny"]
                if event.about == PLAN:
                    self.errors += [f"plan denied: {verdict.reason}" for verdict in denied]
            case _:
                pass


async def goal_phases(journal: AsyncIterable[JournalEntry]) -> "GoalPhases":
    phases = GoalPhases()
    async for entry in journal:
        phases.take(entry)
    return phases


class _ArrivedGuidance(NamedTuple):
    guidance: Guidance
    iteration: int
    """The iteration in which it arrived."""


class GoalPhases:
    """A goal from its start to its present state."""

    def __init__(self) -> None:
        self.run = RunView()
        self.phases: list[Phase] = []
        self._latest_end: datetime | None = None
        self._is_reply_used = False
        """True once an entry shows that the reply of the latest phase was used."""
        self._guidance: list[_ArrivedGuidance] = []
        """Guidance that no phase has yet."""
        self._unanswered: list[Guidance] = []
        """Guidance that may still be refused."""
        self._kept = ""
        """The goal's memory after the latest phase."""

    def take(self, entry: JournalEntry) -> None:
        event = self.run.take(entry).event
        if entry.run:  # entries of delegated runs belong to no phase
            return
        match event:
            case on.InterventionReceived():
                if event.kind in _GUIDANCE:
                    self._unanswered.append(guidance := Guidance.model_validate(entry.data))
                    self._guidance.append(_ArrivedGuidance(guidance, entry.iteration))
                return
            case on.Terminated() | on.InterventionApplied():  # a pause counts for the phase after it
                return
            case on.ReasoningComplete():
                self._close_phase(event.turn)
                self._open_phase(entry, _PROMPT_PHASES.get(event.turn, "other"))
                self._add_reply(event)
            case on.QuestionAsked():
                self._open_phase(entry, ASK)
            case on.PlanMade(pipeline=str()):
                self._open_phase(entry, "plan")  # no model was called for this plan
            case on.StepOverridden():
                self._answer_guidance(OVERRIDE)
            case on.InterventionRefused():
                self._answer_guidance(event.kind, event.reason)
            case _:
                pass
        if self.phases:
            self._add_entry(entry, event)
        self._latest_end = entry.timestamp

    def _answer_guidance(self, kind: str, refused: str | None = None) -> None:
        """Mark guidance as answered.

        Overrides are answered in order. Other guidance is only answered by a refusal, which counts for the latest one.
        """
        of_kind = [guidance for guidance in self._unanswered if guidance.kind == kind]
        if not of_kind:
            return
        answered = of_kind[0] if kind == OVERRIDE else of_kind[-1]
        self._unanswered = [guidance for guidance in self._unanswered if guidance is not answered]
        if refused is not None:
            answered.refused = refused

    def _open_phase(self, entry: JournalEntry, name: str) -> None:
        phase = Phase(entry.iteration, name, entry.timestamp, 0.0)
        self._latest_end = self._latest_end or entry.timestamp
        phase.duration_s = (entry.timestamp - self._latest_end).total_seconds()
        if name != ASK:
            phase.guidance = [each.guidance for each in self._guidance if each.iteration < entry.iteration]
            self._guidance = [each for each in self._guidance if each.iteration >= entry.iteration]
        self.phases.append(phase)
        self._is_reply_used = False

    def _close_phase(self, next_prompt: str) -> None:
        """Add an error to the latest phase if its reply was not used."""
        phase = self.phases[-1] if self.phases else None
        if phase is None or phase.phase not in _RESULT_EVENTS or self._is_reply_used:
            return
        plan_error = _reply_object(phase).get("error") if phase.phase == "plan" else None
        again = ", and was asked for again" if _PROMPT_PHASES.get(next_prompt) == phase.phase else ""
        phase.errors.append(f"no plan: {plan_error}" if plan_error else f"the reply was not used{again}")

    def _add_reply(self, event: on.ReasoningComplete) -> None:
        phase = self.phases[-1]
        phase.reply, phase.usage, phase.cost_usd = event.actions, event.usage, event.cost_usd
        phase.prompt, phase.repaired = event.prompt, bool(event.repaired)
        phase.memory = parsed_memory(_reply_object(phase), "") if phase.phase in {"plan", "evaluate", "decide"} else ""
        if event.finish not in _NORMAL_FINISH:
            phase.errors.append(f"the reply ended early: {event.finish}")

    def _add_entry(self, entry: JournalEntry, event: JournalEvent) -> None:
        phase = self.phases[-1]
        phase.duration_s += (entry.timestamp - phase.ended_at).total_seconds()
        phase.ended_at = entry.timestamp
        if isinstance(event, _RESULT_EVENTS.get(phase.phase, ())):
            self._is_reply_used = True
            self._kept = _current_memory(phase, event, self._kept)
        phase.kept = self._kept
        phase.add(event)


def _current_memory(phase: Phase, event: JournalEvent, before: str) -> str:
    """Return the goal's memory after an event that shows that a reply was used."""
    is_rejected = isinstance(event, on.MemoryCompressed) and not event.taken
    is_not_from_model = isinstance(event, (on.StepEvaluated, on.DecisionMade)) and event.by in {"rule", "operator"}
    if is_rejected or is_not_from_model:
        return before
    return parsed_memory(_reply_object(phase), before)


def _reply_object(phase: Phase) -> dict[str, Any]:
    """Return the reply as a JSON object. A reply that is not an object gives an empty one."""
    prompt = next((prompt for prompt, name in _PROMPT_PHASES.items() if name == phase.phase), "")
    try:
        return goal_reply_object(prompt, phase.reply_text)
    except ValueError:
        return {}
