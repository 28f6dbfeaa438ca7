"""Any run of ours as one value, shared by its phases and its handlers: its state, its clock, its history's length."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from datetime import datetime
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar

from temporalio import workflow
from temporalio.common import SearchAttributeUpdate
from temporalio.exceptions import FailureError, is_cancelled_exception

from orga.workflows.decisions.control import limits
from orga.workflows.phases.control import clock
from orga.workflows.phases.control.clock import Length, length
from orga.workflows.phases.control.interrupt import Interrupted
from orga.workflows.phases.control.spans import show_closed_questions
from orga.workflows.types.control import NOTES_MEMO, Control
from orga.workflows.types.names import ITERATION, PHASE

S = TypeVar("S", bound=Control)
P = ParamSpec("P")
T = TypeVar("T")


class DefectBeside(Exception):
    """An error in what goes on beside the loop."""


class RollOver(Exception):
    """The history has grown enough while people were waited for: the run continues as new, and asks them on."""


class ControlledRun(Generic[S]):
    """Holds the state, and changes it through pure functions only; what they note goes into the history at once.

    A workflow's own run says by overriding what it shows of itself, and whether its state can be carried on.
    """

    def __init__(self, state: S) -> None:
        self.state = state
        self.now = clock.event_time()
        """Of the last event of the run's own; see `clock`."""
        self.before = self.now
        """The time before the clock was last moved on."""
        self.length = Length()
        """Of the history, at that event."""
        self.doubts = 0
        """How many aborts wait for word of a reset; see `resets`."""
        self._heard = 0
        self._fault: BaseException | None = None

    def details(self) -> str:
        """Return the current details, in Markdown, for the Temporal UI."""
        return f"**{self.state.phase}**"

    def progress(self) -> list[SearchAttributeUpdate[Any]]:
        """Return the search attributes that tell how far the run is."""
        return [PHASE.value_set(self.state.phase), ITERATION.value_set(self.state.iteration)]

    def watch_change(self, before: S, after: S) -> None:
        """Tell what a change of the state means to who watches."""
        show_closed_questions(before, after)

    def change(self, decide: Callable[Concatenate[S, P], S], *args: P.args, **kwargs: P.kwargs) -> None:
        """Set the state to what `decide` makes of it."""
        state = decide(self.state, *args, **kwargs)
        self.watch_change(self.state, state)
        if state.notes:
            workflow.upsert_memo(
                {NOTES_MEMO: [note.model_dump(mode="json", exclude_unset=True) for note in state.notes]}
            )
            state = state.with_control(notes=())
        self.state = state

    def tick(self) -> datetime:
        """Move the clock on, now that an event of the run's own is taken in; return the time that holds from here on.

        To be called where a signal or an update is handled, and where an ordinary activity, a timer or a child has
        ended: never behind a local activity.
        """
        if (now := clock.event_time()) > self.now:
            self.before, self.now = self.now, now
        self.length = length()
        return self.now

    async def event(self, ending: Awaitable[T]) -> T:
        """Wait for an ordinary activity, a child or a signal to another run to end, and move the clock on."""
        try:
            ended = await ending
        except FailureError as error:
            if not is_cancelled_exception(error):  # a cancellation may be told without an event
                self.tick()
            raise
        self.tick()
        return ended

    def beside(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Do something beside the loop, which does not wait for it: an error in it is the run's, see `until_done`."""
        task = asyncio.create_task(work)
        task.add_done_callback(self._take_fault)
        return task

    def _take_fault(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and self._fault is None:
            self._fault = task.exception()

    async def until_done(self, loop: asyncio.Task[T]) -> T:
        """Wait for the loop.

        Raises:
            DefectBeside: What goes on beside it has failed. That fails the workflow task, which is tried again until it
                is mended: a deadline that has died would let the run pass its limits, and nobody would hear of it.
        """
        await workflow.wait_condition(lambda: loop.done() or self._fault is not None)
        if self._fault is not None:
            raise DefectBeside(f"{type(self._fault).__name__}: {self._fault}") from self._fault
        return loop.result()

    def heard(self) -> datetime:
        """Take in a signal or an update: by these alone does a history grow while people are waited for."""
        self._heard += 1
        return self.tick()

    async def wait_until(
        self, is_over: Callable[[], bool], *, may_roll_over: bool = False, timeout_s: float | None = None
    ) -> None:
        """Wait until it is over, as long as it takes.

        Args:
            is_over: What is waited for.
            may_roll_over: Whether the next run could begin this wait anew without doing anything twice.
            timeout_s: After which a `TimeoutError` is raised.

        Raises:
            RollOver: The history has grown enough, by messages that came meanwhile.
        """
        heard = self._heard
        await workflow.wait_condition(
            lambda: is_over() or (may_roll_over and self._heard > heard and self.is_due), timeout=timeout_s
        )
        if not is_over():
            raise RollOver

    @property
    def is_full(self) -> bool:
        """Whether the history is so long that the server will soon end the run without a result."""
        return limits.is_full(self.state, self.length.events, self.length.size)

    @property
    def is_due(self) -> bool:
        """Whether to continue as new: never while an abort is in doubt."""
        return not self.doubts and self.may_roll_over(self.length)

    def may_roll_over(self, now: Length) -> bool:
        """Return whether the history is long enough to be left behind, and the state can be carried on."""
        return limits.is_time_to_roll_over(self.state, now.events, now.size, now.is_long)

    def is_interrupted(self) -> bool:
        """Return whether what is in flight has to be cut short: an abort, or the ending is decided."""
        return self.state.aborted is not None or self.state.stop is not None

    def raise_if_interrupted(self) -> None:
        """Do nothing.

        Raises:
            Interrupted: The run is to end.
        """
        if self.is_interrupted():
            raise Interrupted
