"""Folds the journal of a run to its current state. The command line, the console and other front ends show it."""

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from orga.client.journal import event_types as on
from orga.client.journal.event_types import JournalEvent, read_event
from orga.workflows.types.status import JournalEntry

EVENT_PHASES: dict[type[JournalEvent], str] = {
    on.Started: "preparing",
    **dict.fromkeys((on.Prepared, on.PreHydrationComplete, on.KnowledgeRecalled, on.TurnStarted), "reasoning"),
    on.ReasoningComplete: "gating",
    **dict.fromkeys((on.PolicyEvaluated, on.ToolsDispatched, on.ApprovalResolved, on.QuestionAnswered), "acting"),
    **dict.fromkeys((on.ApprovalRequested, on.QuestionAsked), "waiting"),
    on.ObservationsCollected: "reasoning",
    on.TurnEnded: "idle",
    on.Terminated: "done",
}
"""The phase of a run after an event. An event that is not here does not change the phase."""

_COUNTED_EVENTS = (on.ReasoningComplete, on.CritiqueEvaluated, on.ContextCompacted, on.DelegationEnded)
"""Events whose usage is added up. The usage in other events is a sum of these."""


@dataclass
class Turn:
    number: int
    message: str
    begun_at: datetime
    answer: str = ""
    reason: str = ""
    """The reason of its end; "" while it is not over."""


@dataclass
class Plan:
    """The plan of a goal, with the outcomes of its steps."""

    _steps: dict[str, dict[str, Any]] = field(default_factory=dict[str, dict[str, Any]])
    _rounds: set[str] = field(default_factory=set[str])
    """The iterations whose calls were steps. Each is one round."""
    _scores: dict[int, list[float]] = field(default_factory=dict[int, list[float]])
    """The model's scores of steps, by the iteration that gave them."""
    _pipeline: str = ""

    def as_status(self) -> dict[str, Any] | None:
        """Return the plan as the status of a live goal has it, or None if there is none yet."""
        if not self._steps:
            return None
        from orga.workflows.decisions.goals.progress import score_trend  # imported here because only goals need it

        trend = score_trend([sum(each) / len(each) for each in self._scores.values()])
        return {
            "rounds": len(self._rounds),
            "steps": list(self._steps.values()),
            **({"trend": trend.word, "average": trend.average, "slope": trend.slope} if trend else {}),
            **({"pipeline": self._pipeline} if self._pipeline else {}),
        }

    def take(self, event: JournalEvent, iteration: int) -> None:
        match event:
            case on.PlanMade() | on.PlanAdjusted():
                if isinstance(event, on.PlanMade) and event.pipeline is not None:
                    self._pipeline = event.pipeline
                ended = {step_id: step for step_id, step in self._steps.items() if step.get("status") != "open"}
                self._steps = ended | {step.id: {**step.as_recorded(), "status": "open"} for step in event.steps}
            case on.StepExecuted():
                self._rounds.add(event.place.partition(".")[0])
                status = "done" if event.status == "ok" else "failed"
                self._update_step(event.step, skill=event.skill, status=status, output=event.place, error=event.error)
            case on.StepEvaluated():
                failed = {"status": "failed"} if event.quality == "failed" else {}
                self._update_step(event.step, score=event.score, quality=event.quality or None, **failed)
                if event.score is not None and not event.by:  # a critic's scores have another scale
                    self._scores.setdefault(iteration, []).append(event.score)
            case on.StepOverridden():
                self._update_step(event.step, skill=event.skill, goal="set by a person", status="open")
            case _:
                pass

    def _update_step(self, step: str, **changes: Any) -> None:
        self._steps[step] = {**self._steps.get(step, {"id": step, "goal": "", "skill": ""}), **changes}


@dataclass(frozen=True)
class ViewedEntry:
    entry: JournalEntry
    event: JournalEvent
    run: "RunView"
    """The run that wrote the entry, after this entry."""
    begins_iteration: bool


@dataclass
class RunView:
    """A run after the entries so far. It keeps what is current, but not the entries, so that its size stays bounded."""

    depth: int = 0
    """The number of delegations between the journal's own run and this one."""
    first: JournalEntry | None = None
    last: JournalEntry | None = None
    task: str = ""
    setup: on.Prepared | None = None
    agent: str = ""
    iteration: int = 0
    earlier_iterations: int = 0
    """Iterations of a session's earlier turns."""
    phase: str = "starting"
    paused: bool = False
    tokens: int = 0
    calls: tuple[on.RecordedAction, ...] = ()
    """The calls of the latest reply."""
    dispatched_at: datetime | None = None
    questions: dict[str, ViewedEntry] = field(default_factory=dict[str, ViewedEntry])
    """Open questions to people, by id."""
    plan: Plan = field(default_factory=Plan)
    turn: Turn | None = None
    delegates: dict[str, str] = field(default_factory=dict[str, str])
    """The agents of the runs that this run has delegated to, by workflow id."""
    ending: on.Terminated | None = None
    _delegate_views: dict[str, "RunView"] = field(default_factory=dict[str, "RunView"])
    """The views of all delegated runs, by workflow id. Only the view of the journal's own run has them."""

    def take(self, entry: JournalEntry) -> ViewedEntry:
        """Add the journal's next entry. The entry of a delegated run changes only the view of that run."""
        run = self._delegate_views.setdefault(entry.run, RunView()) if entry.run else self
        viewed = ViewedEntry(entry, read_event(entry), run, entry.iteration > run.iteration)
        run._add(viewed)
        if isinstance(viewed.event, on.DelegationStarted):
            self._delegate_views.setdefault(viewed.event.workflow_id, RunView()).depth = run.depth + 1
        return viewed

    @property
    def turn_iteration(self) -> int:
        """The number of the current iteration. Each turn of a session counts its own."""
        return self.iteration - self.earlier_iterations

    def elapsed_s(self, entry: JournalEntry) -> float:
        """Return the seconds from the run's first entry to this one."""
        return (entry.timestamp - self.first.timestamp).total_seconds() if self.first else 0.0

    def _add(self, viewed: ViewedEntry) -> None:
        entry, event = viewed.entry, viewed.event
        self.first, self.last = self.first or entry, entry
        self.agent, self.iteration = entry.agent, entry.iteration
        self.phase = EVENT_PHASES.get(type(event), self.phase)
        self.paused = is_paused_after(event, before=self.paused)
        self.ending = event if isinstance(event, on.Terminated) else None
        self._update_turn(entry, event)
        match event:
            case on.Started():
                self.task = self.task or event.task
            case on.Prepared():
                self.setup = self.setup or event
            case on.ReasoningComplete():
                self.calls = event.calls
            case on.ToolsDispatched():
                self.dispatched_at = entry.timestamp
            case on.DelegationStarted():
                self.delegates[event.workflow_id] = event.agent
            case on.ApprovalRequested() | on.QuestionAsked():
                self.questions[event.id] = viewed
            case on.ApprovalResolved() | on.QuestionAnswered():
                self.questions.pop(event.id, None)
            case on.Terminated():
                self.questions.clear()
            case _:
                self.plan.take(event, entry.iteration)
        if isinstance(event, _COUNTED_EVENTS):
            self.tokens += event.usage.input_tokens + event.usage.output_tokens

    def _update_turn(self, entry: JournalEntry, event: JournalEvent) -> None:
        if isinstance(event, on.TurnStarted):
            self.turn = Turn(event.turn, event.message_lines, entry.timestamp)
            self.earlier_iterations, self.tokens = entry.iteration, 0  # each turn has its own limits
        elif self.turn and isinstance(event, on.TurnEnded):
            self.turn.reason = event.reason or "ended"
        elif self.turn and isinstance(event, on.ReasoningComplete):
            answer = "\n".join(action.respond for action in event.actions if action.respond)
            self.turn.answer = answer or self.turn.answer


def is_paused_after(event: JournalEvent, *, before: bool) -> bool:
    if isinstance(event, on.InterventionReceived):
        return {"pause": True, "resume": False, "abort": False}.get(event.kind, before)
    return before and not isinstance(event, on.Terminated)
