"""The lifecycle of a run from its start to its result, which agents, goals and sessions share.

It also has the queries, and the updates about budgets, dead letters and deferred calls. The other signals and updates
are in `phases/control/handlers.py`. Guidance can resume a run that has ended, until its end is reported.
"""

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any, Generic, NamedTuple, NoReturn, TypeVar

from temporalio import workflow
from temporalio.exceptions import ActivityError, ApplicationError

from orga.workflows.decisions import observe
from orga.workflows.decisions.begin import with_unpinned_server_taint
from orga.workflows.decisions.continue_as_new import continue_as_new_state, shortened_fields
from orga.workflows.decisions.control.interventions import with_reopened_end, with_rest_refused, with_run_over
from orga.workflows.decisions.limits import parsed_extension, with_extension
from orga.workflows.decisions.result import agent_status, parsed_page, shown_conversation
from orga.workflows.decisions.tool_calls import call_questions, recovery
from orga.workflows.decisions.tool_calls.delegation import with_delegate_paused
from orga.workflows.phases.agent_run import Run, describe_span, show_start
from orga.workflows.phases.control import visibility
from orga.workflows.phases.control.ask_people import announce_end
from orga.workflows.phases.control.failure_text import failure_message, failure_text
from orga.workflows.phases.control.handlers import ControlHandlers, first_argument
from orga.workflows.phases.control.lifetime import (
    ResetWatch,
    RunWatches,
    Watch,
    continue_as_new,
    run_to_completion,
)
from orga.workflows.phases.control.run import ContinueAsNew, Interrupted, event_time, wall_time
from orga.workflows.phases.control.visibility import show_details
from orga.workflows.phases.failures import is_invalid_input, is_out_of_time
from orga.workflows.phases.prepare import adopt_past, prepare_setup
from orga.workflows.types.control import InterventionKind, Stop
from orga.workflows.types.record import InvalidInput
from orga.workflows.types.state import AgentState
from orga.workflows.types.status import AgentResult, AgentStatus, ShownMessage
from orga.workflows.types.tool_calls.tools import INVALID_RESULT


class RunHandlers(ControlHandlers[Run]):
    """Handlers for runs of agents, goals and sessions."""

    @workflow.signal
    def delegate_held(self, *held: Any) -> None:
        """Stop or restart the clock. A delegate sends this signal when a person begins or ceases to hold it up."""
        self._run.change_state(with_delegate_paused, held, self._run.record_intervention())
        show_details(self._run)

    @workflow.update
    def extend_budget(self, *limits: Any) -> dict[str, float]:
        """Raise limits of this run, and return all limits raised so far."""
        self._run.record_intervention()
        raised = parsed_extension(self._run.state, first_argument(limits))
        self._run.change_state(with_extension, raised)
        return self._run.state.extended

    @extend_budget.validator
    def _validate_extension(self, *limits: Any) -> None:
        self.refuse_if_over()
        parsed_extension(self._run.state, first_argument(limits))

    @workflow.signal(name="extend_budget")
    def take_extension(self, *limits: Any) -> None:
        """Raise limits as the update does."""
        self.take_decision("extend_budget", limits)

    def decide(self, kind: InterventionKind, decision: object, now: datetime) -> None:
        """Record a decision. Raise ValueError if nothing waits for it, or if it comes too late."""
        match kind:
            case "extend_budget":
                self._run.change_state(with_extension, parsed_extension(self._run.state, decision))
            case "requeue":
                self.refuse_requeue()
                self._run.change_state(recovery.with_requeued_letter, recovery.parsed_letter_id(decision))
            case "complete_tool_call":
                self._run.change_state(call_questions.with_completion, decision, now)
            case _:
                super().decide(kind, decision, now)

    @workflow.update
    def requeue(self, *letter_id: Any) -> None:
        """Send a dead letter again before the next reasoning step."""
        self._run.record_intervention()
        self._run.change_state(recovery.with_requeued_letter, recovery.parsed_letter_id(first_argument(letter_id)))

    def refuse_requeue(self) -> None:
        """Raise ValueError if the run cannot send a dead letter now. The error names what to do first."""

    @requeue.validator
    def _validate_requeue(self, *letter_id: Any) -> None:
        self.refuse_if_over()
        self.refuse_requeue()
        recovery.with_requeued_letter(self._run.state, recovery.parsed_letter_id(first_argument(letter_id)))

    @workflow.signal(name="requeue")
    def take_requeue(self, *letter_id: Any) -> None:
        """Send a dead letter again as the update does."""
        self.take_decision("requeue", letter_id)

    @workflow.update
    async def complete_tool_call(self, *completion: Any) -> None:
        """Give a call of a deferred tool its result, or its error. A repetition changes nothing."""
        now = self._run.record_intervention()
        parsed = call_questions.parsed_completion(self._run.state, first_argument(completion))
        if parsed is None:
            return
        key, _ = parsed
        self._run.checked_results.pop(key, None)
        self._run.change_state(call_questions.with_completion, first_argument(completion), now)
        show_details(self._run)
        await workflow.wait_condition(lambda: key in self._run.checked_results or self._run.is_interrupted())
        if why := self._run.checked_results.get(key):
            raise ApplicationError(why, type=INVALID_RESULT, non_retryable=True)

    @complete_tool_call.validator
    def _validate_completion(self, *completion: Any) -> None:
        self.refuse_if_over()
        call_questions.parsed_completion(self._run.state, first_argument(completion))

    @workflow.signal(name="complete_tool_call")
    def take_completion(self, *completion: Any) -> None:
        """Complete a call as the update does."""
        self.take_decision("complete_tool_call", completion)

    @workflow.query
    def status(self) -> AgentStatus:
        """The run's status. During the run, times come from the clock of the worker that answers."""
        is_over = self._run.state.is_over
        return agent_status(self._run.state, self._run.now if is_over else wall_time())

    @workflow.query
    def conversation(self, *page: Any) -> list[ShownMessage]:
        """The messages as the model would see them. A long conversation has pages: `{"offset": 0, "limit": 100}`."""
        return shown_conversation(self._run.state, parsed_page(first_argument(page)))


T = TypeVar("T", bound=AgentResult)
S = TypeVar("S", bound=AgentState)


class SegmentStart(NamedTuple):
    """The facts that a segment begins with."""

    raw_input: Any
    """The workflow's first argument. None in a later segment of a run."""
    carried: Any
    """The workflow's second argument: the state that the previous segment carried over, or None."""
    before: str | None
    """The run id of the execution before this one: the previous segment, or an earlier run by cron or a retry."""
    origin: str
    """The run id of this segment before any reset."""
    now: datetime


def segment_start(arguments: Sequence[Any]) -> SegmentStart:
    """Return the start of this segment. More than two arguments are ignored."""
    info = workflow.info()
    raw_input, carried, *_ = (*arguments, None, None)
    return SegmentStart(raw_input, carried, info.continued_run_id, info.original_execution_run_id, event_time())


def state_to_begin_with(first: Callable[[], S], placeholder: Callable[[], S]) -> tuple[S, str]:
    """Return the first state and "". If the input is invalid, return a placeholder state and the reason."""
    try:
        return first(), ""
    except InvalidInput as error:
        return placeholder(), str(error)


class Lifecycle(RunHandlers, Generic[T]):
    """A run from start to result. Each workflow overrides some of the methods before `begin_run`."""

    async def run_until_stop(self) -> Stop:
        """Run the loop until the run ends. Raise ContinueAsNew if the next segment has to begin."""
        raise NotImplementedError

    async def set_fallback_output(self, stop: Stop) -> None:
        """If the run ends without an answer, set an output from partial results."""
        raise NotImplementedError

    def settle_open_work(self, stop: Stop) -> None:
        """Close open work before the end becomes visible. Every ending calls this."""

    def result(self, stop: Stop) -> T:
        raise NotImplementedError

    async def finish_run(self, ended: T) -> T:
        """Do the work that follows a final end, and return the result."""
        return ended

    async def prepare_continue_as_new(self) -> None:
        """Prepare the state for the next segment."""

    def resume_after_end(self) -> None:
        """Resume the run, because guidance arrived before its end was reported."""
        visibility.show_reopened(self._run)

    def begin_run(self, run: Run, problem: str, *others: Watch) -> None:
        """Set the run, and the problem of its input or "". The watches in `others` run next to its loop."""
        self._run, self._problem = run, problem
        self._resets, self._watches = ResetWatch(run), RunWatches(run, *others)

    async def run_to_result(self) -> T:
        """Run to the end and return the result, even if Temporal cancels the run.

        Invalid input fails the run as `InvalidInput`, which is not retryable.
        """
        if self._problem:
            raise self._end_as_invalid_input(self._problem)
        return await run_to_completion(self._run, self._run_and_finish())

    async def _run_and_finish(self) -> T:
        ended = await self._run_with_setup()
        self._run.is_final = True
        finished = await self.finish_run(ended)
        self._run.change_state(with_rest_refused)
        return finished

    async def _run_with_setup(self) -> T:
        run = self._run
        visibility.show_details(run)
        if run.state.setup is None:
            await self._prepare_setup()
        if run.state.setup is None:  # the run has ended before
            stop = run.stop_reason() or Stop("error", "nothing was prepared")
            self.settle_open_work(stop)
            return self._end_run(stop)
        describe_span(run.setup)
        while (ended := await self._run_and_report_end()) is None:
            self.resume_after_end()
        return ended

    async def _prepare_setup(self) -> None:
        run = self._run
        try:
            await adopt_past(run)
            run.apply_setup(await prepare_setup(run))
        except Interrupted:
            return
        except InvalidInput as error:
            raise self._end_as_invalid_input(str(error)) from None
        except ActivityError as error:
            if is_invalid_input(error):
                raise self._end_as_invalid_input(failure_message(error)) from error
            reason = "timeout" if is_out_of_time(error) else "error"
            run.change_state(observe.with_stop, Stop(reason, failure_text(error)))
            return
        run.change_state(with_unpinned_server_taint)
        show_start(run)

    def _end_as_invalid_input(self, problem: str) -> ApplicationError:
        """Return the failure of the run, and end the run, so that its status shows the end."""
        self._run.change_state(observe.with_stop, Stop("error", f"InvalidInput: {problem}"))
        self._run.change_state(with_run_over)
        return ApplicationError(problem, type="InvalidInput", non_retryable=True)

    async def _run_and_report_end(self) -> T | None:
        """Run to an end and report it. Return None if guidance arrived before the report was complete."""
        run = self._run
        self._watches.start()
        try:
            stop = await self.run_until_stop()
        except ContinueAsNew:
            run.end_if_outgrown()
            if run.state.stop is None:
                await self._continue_as_new()
            stop = run.state.stop
        self.settle_open_work(stop)
        run.change_state(with_run_over)
        await self._watches.stop()
        await self.set_fallback_output(stop)
        ended = self._end_run(stop)
        await announce_end(run, stop)
        run.change_state(with_reopened_end)
        return ended if run.state.stop is not None else None

    async def _continue_as_new(self) -> NoReturn:
        await self._watches.stop()
        await self.prepare_continue_as_new()
        run = self._run
        state = continue_as_new_state(run.state, workflow.info().run_id)
        left_out = len(run.state.conversation.messages) - len(state.conversation.messages)
        fields_cut = shortened_fields(run.state, state)
        if fields_cut or left_out:
            data: dict[str, Any] = {"fields_cut": fields_cut} if fields_cut else {}
            run.change_state(
                AgentState.with_note, "ContextCompacted", strategy="continue_as_new", messages_dropped=left_out, **data
            )
        continue_as_new(state)

    def _end_run(self, stop: Stop) -> T:
        run = self._run
        run.change_state(observe.with_stop, stop)
        run.change_state(with_run_over)
        visibility.show_details(run)
        if run.state.setup is not None:
            visibility.show_end(run, stop.reason)
        return self.result(stop)
