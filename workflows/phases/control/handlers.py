"""Handlers that all runs have: signals that steer a run, and updates that decide a question.

A handler only records. The loop acts.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Generic, TypeVar

from temporalio import workflow
from temporalio.common import RawValue

from orga.workflows.decisions.control import interventions, questions
from orga.workflows.phases.control.lifetime import ResetWatch
from orga.workflows.phases.control.run import AnyRun, live_time
from orga.workflows.phases.control.visibility import show_details
from orga.workflows.types.control import Intervention, InterventionKind
from orga.workflows.types.questions import ApprovalDecision

R = TypeVar("R", bound=AnyRun)

TOO_LATE_TEXT = "the result is final; rewind or fork the run to continue from an earlier point"


def first_argument(arguments: tuple[Any, ...]) -> Any:
    return arguments[0] if arguments else None


class ControlHandlers(Generic[R]):
    """Signals and updates. Each handler accepts any arguments, because arguments that do not fit a handler's signature
    would make the workflow task fail again and again.
    """

    _run: R
    _resets: ResetWatch

    @workflow.signal
    def steer(self, *guidance: Any) -> None:
        """Guide the next reasoning step."""
        self._take_guidance("steer", guidance)

    @workflow.signal
    def add_context(self, *context: Any) -> None:
        """Add something to the conversation that the run should know about its task."""
        self._take_guidance("add_context", context)

    @workflow.signal
    def pause(self, *sender: Any) -> None:
        """Stop before the next phase. Clocks and budgets stop too."""
        now = self._run.record_intervention()
        if pause := self.new_intervention("pause", sender):
            self._run.change_state(interventions.with_pause, now, pause)
        show_details(self._run)

    @workflow.signal
    def resume(self, *sender: Any) -> None:
        """Continue after a pause."""
        now = self._run.record_intervention()
        if resume := self.new_intervention("resume", sender):
            self._run.change_state(interventions.with_resume, now, resume)
        show_details(self._run)

    @workflow.signal
    def abort(self, *why: Any) -> None:
        """Cancel running work and end."""
        self._run.record_intervention()
        if abort := self.new_intervention("abort", why):
            self._resets.record_abort(abort)

    @workflow.signal
    def rewound(self, *rewind: Any) -> None:
        """Continue from a reset. `orga rewind` sends it with the reset. From any other sender it has no effect."""
        self._resets.record_rewind(first_argument(rewind))

    @workflow.signal(dynamic=True)
    def count_unknown_signal(self, name: str, arguments: Sequence[RawValue]) -> None:
        """Count an unknown signal, because it takes room in the history."""
        self._run.record_intervention()

    @workflow.signal(name="answer")
    def take_answer(self, *answer: Any) -> None:
        """Answer as the update does."""
        self.take_decision("answer", answer)

    @workflow.signal(name="approve")
    def take_approval(self, *decision: Any) -> None:
        """Approve as the update does."""
        self.take_decision("approve", decision)

    @workflow.signal(name="deny")
    def take_denial(self, *decision: Any) -> None:
        """Deny as the update does."""
        self.take_decision("deny", decision)

    @workflow.signal(name="resolve_escalation")
    def take_resolution(self, *resolution: Any) -> None:
        """Decide as the update does."""
        self.take_decision("resolve_escalation", resolution)

    @workflow.update
    def resolve_escalation(self, *resolution: Any) -> str:
        """Decide an open question. Returns the choice."""
        decision = questions.parsed_resolution(self._run.state, first_argument(resolution))
        self._run.change_state(questions.with_resolution, decision, self._run.record_intervention())
        return decision.choice

    @resolve_escalation.validator
    def _validate_resolution(self, *resolution: Any) -> None:
        self.refuse_if_over()
        questions.parsed_resolution(self._run.state, first_argument(resolution))

    @workflow.update
    def answer(self, *answer: Any) -> str:
        """Answer the open question with a text, or `{question_id, text, by}`. Returns the question's id."""
        decision = questions.parsed_answer(self._run.state, first_argument(answer))
        self._run.change_state(questions.with_resolution, decision, self._run.record_intervention())
        return decision.escalation_id

    @answer.validator
    def _validate_answer(self, *answer: Any) -> None:
        self.refuse_if_over()
        questions.parsed_answer(self._run.state, first_argument(answer))

    @workflow.update
    def approve(self, *decision: Any) -> None:
        """Approve one held call. The approval is bound to exactly that call."""
        self._record_approval_decision(decision, approved=True)

    @approve.validator
    def _validate_approval(self, *decision: Any) -> None:
        self.refuse_if_over()
        questions.parsed_decision(self._run.state, first_argument(decision), live_time())

    @workflow.update
    def deny(self, *decision: Any) -> None:
        """Deny one held call. The model reads the reason."""
        self._record_approval_decision(decision, approved=False)

    @deny.validator
    def _validate_denial(self, *decision: Any) -> None:
        self.refuse_if_over()
        questions.parsed_decision(self._run.state, first_argument(decision), live_time(), approved=False)

    def _take_guidance(self, kind: InterventionKind, arguments: tuple[Any, ...]) -> None:
        self._run.record_intervention()
        guidance = self.new_intervention(kind, arguments)
        if guidance is None:
            return
        sender = guidance.sender
        if self._run.is_final:
            self._run.change_state(interventions.with_refused_signal, kind, TOO_LATE_TEXT, **sender)
        elif sender and not guidance.text.strip():
            self._run.change_state(interventions.with_refused_signal, kind, "text: missing or empty", **sender)
        else:
            self._run.change_state(interventions.with_guidance, guidance)

    def new_intervention(self, kind: InterventionKind, arguments: tuple[Any, ...]) -> Intervention | None:
        """Return a signal as an intervention, or None if an intervention with the same id has arrived before."""
        sent = interventions.intervention(kind, arguments)
        if sent.key in self._run.state.intervention_ids:
            return None
        if sent.key:
            self._run.change_state(interventions.with_intervention_id, sent)
        return sent

    def take_decision(self, kind: InterventionKind, arguments: tuple[Any, ...]) -> None:
        """Record a decision that came as a signal. Its sender needs no running worker. The journal shows a refusal."""
        now = self._run.record_intervention()
        decision, sender = interventions.split_decision(first_argument(arguments))
        if (sent := self.new_intervention(kind, (sender,))) is None:
            return
        try:
            self.refuse_if_over()
            self.decide(kind, decision, now)
        except ValueError as error:
            self._run.change_state(interventions.with_refused_signal, kind, str(error), **sent.sender)
        show_details(self._run)

    def decide(self, kind: InterventionKind, decision: object, now: datetime) -> None:
        """Record a decision. Raise ValueError if nothing waits for it, or if it comes too late."""
        self._run.change_state(questions.with_signalled_decision, kind, decision, now)

    def _record_approval_decision(self, decision: tuple[Any, ...], *, approved: bool) -> None:
        """Record a decision that the validator accepted. Its expiry is not checked again: a replay has another time."""
        parsed = ApprovalDecision.model_validate(first_argument(decision))
        self._run.change_state(questions.with_item_decision, parsed, approved, self._run.record_intervention())
        show_details(self._run)

    def refuse_if_over(self) -> None:
        """Raise ValueError if the run is ending, because decisions then come too late."""
        state = self._run.state
        if state.aborted is not None or state.is_over:
            raise ValueError("the run is ending; it takes no more decisions")
