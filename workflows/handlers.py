"""What clients may ask of a live run: its signals, updates and queries. They only record; the loop acts."""

from collections.abc import Sequence
from typing import Any

from temporalio import workflow
from temporalio.common import RawValue

from orga.workflows.decisions import approvals, interventions, questions, recovery
from orga.workflows.decisions.delegation import with_delegate_held
from orga.workflows.decisions.limits import extended, extension
from orga.workflows.decisions.result import parsed_page, shown_conversation, status
from orga.workflows.phases.clock import live_time, wall_time
from orga.workflows.phases.past import Resets
from orga.workflows.phases.run import Run
from orga.workflows.types.control import InterventionKind
from orga.workflows.types.questions import ApprovalDecision
from orga.workflows.types.status import AgentStatus, ShownMessage


class Handlers:
    """A handler takes any arguments: one that could not be called would fail the workflow task again and again."""

    _run: Run
    _resets: Resets

    @workflow.signal
    def steer(self, *guidance: Any) -> None:
        """Guide the next reasoning step."""
        self._record("steer", guidance)

    @workflow.signal
    def add_context(self, *context: Any) -> None:
        """Append to what the agent knows."""
        self._record("add_context", context)

    @workflow.signal
    def pause(self, *_: Any) -> None:
        """Stop before the next phase; clocks and budgets stand still."""
        self._run.change(interventions.with_pause, self._run.heard())

    @workflow.signal
    def resume(self, *_: Any) -> None:
        """Go on after a pause."""
        self._run.change(interventions.with_resume, self._run.heard())

    @workflow.signal
    def abort(self, *why: Any) -> None:
        """Cancel what is in flight and end."""
        self._resets.abort(interventions.signal_text(why))

    @workflow.signal
    def rewound(self, *rewind: Any) -> None:
        """Go on from where a reset put the run: sent by `orga rewind` with the reset, by anybody else in vain."""
        self._resets.claimed(_first(rewind))

    @workflow.signal
    def delegate_held(self, *held: Any) -> None:
        """Stop or go on with the clock; sent by a delegated run that a person holds up."""
        self._run.change(with_delegate_held, held, self._run.heard())

    @workflow.signal(dynamic=True)
    def unknown(self, name: str, arguments: Sequence[RawValue]) -> None:
        """Count a signal that says nothing here: it takes room in the history all the same."""
        self._run.heard()

    @workflow.update
    def extend_budget(self, *limits: Any) -> dict[str, float]:
        """Raise limits of this run; return those that hold now."""
        self._run.heard()
        raised = extension(self._run.state, _first(limits))
        self._run.change(extended, raised)
        return self._run.state.extended

    @extend_budget.validator
    def _raises_a_limit(self, *limits: Any) -> None:
        self._refuse_when_over()
        extension(self._run.state, _first(limits))

    @workflow.update
    def resolve_escalation(self, *resolution: Any) -> str:
        """Decide what waits for a person; return the choice."""
        decision = questions.parsed_resolution(self._run.state, _first(resolution))
        self._run.change(questions.with_resolution, decision, self._run.heard())
        return decision.choice

    @resolve_escalation.validator
    def _decides_what_waits(self, *resolution: Any) -> None:
        self._refuse_when_over()
        questions.parsed_resolution(self._run.state, _first(resolution))

    @workflow.update
    def approve(self, *decision: Any) -> None:
        """Say yes to one held call; it is bound to exactly that call."""
        self._decide(decision, approved=True)

    @approve.validator
    def _may_be_approved(self, *decision: Any) -> None:
        self._refuse_when_over()
        approvals.parsed_decision(self._run.state, _first(decision), live_time())

    @workflow.update
    def deny(self, *decision: Any) -> None:
        """Say no to one held call; the reason reaches the model."""
        self._decide(decision, approved=False)

    @deny.validator
    def _may_be_denied(self, *decision: Any) -> None:
        self._refuse_when_over()
        approvals.parsed_decision(self._run.state, _first(decision), live_time())

    @workflow.update
    def requeue(self, *letter_id: Any) -> None:
        """Send a dead letter again, before the next reasoning step."""
        self._run.heard()
        self._run.change(recovery.requeued, recovery.parsed_letter_id(_first(letter_id)))

    @requeue.validator
    def _is_a_dead_letter(self, *letter_id: Any) -> None:
        self._refuse_when_over()
        recovery.requeued(self._run.state, recovery.parsed_letter_id(_first(letter_id)))

    @workflow.query
    def status(self) -> AgentStatus:
        """Where the run stands, while it goes on by the clock of the worker that is asked."""
        is_over = self._run.state.phase == "done"
        return status(self._run.state, self._run.now if is_over else wall_time())

    @workflow.query
    def conversation(self, *page: Any) -> list[ShownMessage]:
        """The messages as the model would see them; of a long conversation a page: `{"offset": 0, "limit": 100}`."""
        return shown_conversation(self._run.state, parsed_page(_first(page)))

    def _record(self, kind: InterventionKind, arguments: tuple[Any, ...]) -> None:
        self._run.heard()
        self._run.change(interventions.with_guidance, interventions.guidance(kind, arguments))

    def _decide(self, decision: tuple[Any, ...], *, approved: bool) -> None:
        """Take a decision that the validator let through: in a replay the time may differ, and must not refuse it."""
        self._run.heard()
        parsed = ApprovalDecision.model_validate(_first(decision))
        self._run.change(approvals.answered, parsed, approved)

    def _refuse_when_over(self) -> None:
        state = self._run.state
        if state.aborted is not None or state.phase == "done":
            raise ValueError("the run is ending; it takes no more decisions")


def _first(arguments: tuple[Any, ...]) -> Any:
    return arguments[0] if arguments else None
