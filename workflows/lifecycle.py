"""From a run's start to its result: what agents and goals share, and the updates that they accept.

Setup, limits, the end and continuing as new are the same; the end may be put off by guidance that came before it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, NoReturn, TypeVar

from temporalio import workflow
from temporalio.exceptions import ActivityError, ApplicationError

from orga.workflows.decisions import observe
from orga.workflows.decisions.begin import with_definitions
from orga.workflows.decisions.continue_as_new import carried, cut_parts
from orga.workflows.decisions.control.interventions import reopened, with_over
from orga.workflows.decisions.limits import extended, extension
from orga.workflows.decisions.result import parsed_page, shown_conversation, status
from orga.workflows.decisions.tool_calls import recovery
from orga.workflows.decisions.tool_calls.delegation import with_delegate_held
from orga.workflows.phases.control import visibility
from orga.workflows.phases.control.failure_text import failure_message, failure_text
from orga.workflows.phases.control.handlers import ControlHandlers, first_of
from orga.workflows.phases.control.lifetime import Resets, Watch, Watches, continue_as_new, run_to_an_end, tell_end
from orga.workflows.phases.control.run import Interrupted, RollOver, wall_time
from orga.workflows.phases.control.visibility import show_details
from orga.workflows.phases.failures import is_invalid_input, is_out_of_time
from orga.workflows.phases.prepare import prepare_setup, take_past
from orga.workflows.phases.run import Run, name_run, show_start
from orga.workflows.types.control import Stop
from orga.workflows.types.record import InvalidInput
from orga.workflows.types.state import AgentState
from orga.workflows.types.status import AgentResult, AgentStatus, ShownMessage


class Handlers(ControlHandlers[Run]):
    """The agent's."""

    @workflow.signal
    def delegate_held(self, *held: Any) -> None:
        """Stop or go on with the clock; sent by a delegated run that a person holds up."""
        self._run.change(with_delegate_held, held, self._run.heard())
        show_details(self._run)

    @workflow.update
    def extend_budget(self, *limits: Any) -> dict[str, float]:
        """Raise limits of this run; return those that hold now."""
        self._run.heard()
        raised = extension(self._run.state, first_of(limits))
        self._run.change(extended, raised)
        return self._run.state.extended

    @extend_budget.validator
    def _raises_a_limit(self, *limits: Any) -> None:
        self.refuse_when_over()
        extension(self._run.state, first_of(limits))

    @workflow.update
    def requeue(self, *letter_id: Any) -> None:
        """Send a dead letter again, before the next reasoning step."""
        self._run.heard()
        self._run.change(recovery.requeued, recovery.parsed_letter_id(first_of(letter_id)))

    def refuse_requeue(self) -> None:
        """Refuse to send a letter again where nothing would send it.

        Raises:
            ValueError: With what to do first.
        """

    @requeue.validator
    def _is_a_dead_letter(self, *letter_id: Any) -> None:
        self.refuse_when_over()
        self.refuse_requeue()
        recovery.requeued(self._run.state, recovery.parsed_letter_id(first_of(letter_id)))

    @workflow.query
    def status(self) -> AgentStatus:
        """Where the run stands, while it goes on by the clock of the worker that is asked."""
        is_over = self._run.state.is_over
        return status(self._run.state, self._run.now if is_over else wall_time())

    @workflow.query
    def conversation(self, *page: Any) -> list[ShownMessage]:
        """The messages as the model would see them; of a long conversation a page: `{"offset": 0, "limit": 100}`."""
        return shown_conversation(self._run.state, parsed_page(first_of(page)))


T = TypeVar("T", bound=AgentResult)
S = TypeVar("S", bound=AgentState)


def state_to_begin(first: Callable[[], S], placeholder: Callable[[], S]) -> tuple[S, str]:
    """Return the state to begin with; where the input is none, what is wrong with it, and a placeholder."""
    try:
        return first(), ""
    except InvalidInput as error:
        return placeholder(), str(error)


class Lifecycle(Handlers, Generic[T]):
    """A run of the loop; what each workflow has of its own stands first."""

    async def run_until_stop(self) -> Stop:
        """Go on until the run ends, and return how.

        Raises:
            RollOver: It is to continue as new.
        """
        raise NotImplementedError

    async def bring(self, stop: Stop) -> None:
        """Let a run that ends without an answer bring what it has."""
        raise NotImplementedError

    def settle_open(self, stop: Stop) -> None:
        """Settle what the ending leaves open, before anybody can see that it is over; every ending passes here."""

    def result(self, stop: Stop) -> T:
        """Return what the run comes to."""
        raise NotImplementedError

    async def finish(self, ended: T) -> T:
        """Do what is left to do once the ending is final, and return the result."""
        return ended

    async def leave(self) -> None:
        """Do what has to be done before the run continues as new."""

    def go_on(self) -> None:
        """Go on behind an end that was not told yet: guidance came."""
        visibility.show_goes_on(self._run)

    def begin(self, run: Run, problem: str, *others: Watch) -> None:
        """Take the run, and what is wrong with its input; `others` is watched beside its loop."""
        self._run, self._problem = run, problem
        self._resets, self._watches = Resets(run), Watches(run, *others)

    async def live(self) -> T:
        """Run to an ending, also when Temporal cancels it.

        Raises:
            ApplicationError: `InvalidInput`, not retryable, for input that no run can start with.
        """
        if self._problem:
            raise ApplicationError(self._problem, type="InvalidInput", non_retryable=True)
        return await run_to_an_end(self._run, self._until_finished())

    async def _until_finished(self) -> T:
        ended = await self._until_ended()
        self._run.is_final = True
        return await self.finish(ended)

    async def _until_ended(self) -> T:
        run = self._run
        visibility.show_details(run)
        if run.state.setup is None:
            await self._prepare()
        if run.state.setup is None:
            stop = run.stop_reason() or ("error", "nothing was prepared")
            self.settle_open(stop)
            return self._end(stop)
        name_run(run.setup)
        while (ended := await self._until_stopped()) is None:
            self.go_on()
        return ended

    async def _prepare(self) -> None:
        """Find the setup, unless the run ends before it has one."""
        run = self._run
        try:
            await take_past(run)
            setup = await prepare_setup(run)
        except Interrupted:
            return
        except ActivityError as error:
            if is_invalid_input(error):
                raise ApplicationError(failure_message(error), type="InvalidInput", non_retryable=True) from error
            run.change(observe.with_stop, "timeout" if is_out_of_time(error) else "error", failure_text(error))
            return
        run.prepare(setup)
        run.change(with_definitions)
        show_start(run)

    async def _until_stopped(self) -> T | None:
        """Go on to an end, and tell it; None where guidance came before that was done."""
        run = self._run
        self._watches.start()
        try:
            stop = await self.run_until_stop()
        except RollOver:
            run.end_if_outgrown()
            stop = run.state.stop or await self._roll_over()
        self.settle_open(stop)
        run.change(with_over)
        await self._watches.stop()
        await self.bring(stop)
        ended = self._end(stop)
        await tell_end(run, stop)
        run.change(reopened)
        return ended if run.state.stop is not None else None

    async def _roll_over(self) -> NoReturn:
        await self._watches.stop()
        await self.leave()
        run = self._run
        state = carried(run.state, workflow.info().run_id)
        left_out = len(run.state.conversation.messages) - len(state.conversation.messages)
        if (cut := cut_parts(run.state, state)) or left_out:
            told: dict[str, Any] = {"fields_cut": cut} if cut else {}
            run.change(
                AgentState.with_note, "ContextCompacted", strategy="continue_as_new", messages_dropped=left_out, **told
            )
        continue_as_new(state)

    def _end(self, stop: Stop) -> T:
        run = self._run
        run.change(observe.with_stop, *stop)
        run.change(with_over)
        visibility.show_details(run)
        if run.state.setup is not None:
            visibility.show_end(run, stop[0])
        return self.result(stop)
