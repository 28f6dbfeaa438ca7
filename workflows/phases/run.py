"""The run as one value, shared by the phases and the handlers of a workflow."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from datetime import datetime
from typing import Any, Concatenate, ParamSpec, TypeVar

from temporalio import workflow
from temporalio.exceptions import FailureError, is_cancelled_exception

from orga.workflows.decisions import roll_over
from orga.workflows.phases import clock
from orga.workflows.phases.clock import Length, length
from orga.workflows.phases.interrupt import Interrupted
from orga.workflows.phases.telemetry import show_change
from orga.workflows.types.context import Setup
from orga.workflows.types.input import LoopConfig
from orga.workflows.types.journal import NOTES_MEMO
from orga.workflows.types.state import AgentState

P = ParamSpec("P")
T = TypeVar("T")


MAX_STARTS = 8
"""Delegates started in one workflow task, whose message to the server may have 4 MB: each is told the facts."""


class DefectBeside(Exception):
    """An error in what goes on beside the loop."""


class RollOver(Exception):
    """The history has grown enough while people were waited for: the run continues as new, and asks them on."""


class Run:
    """Holds the state, and changes it through pure functions only; what they note goes into the history at once."""

    def __init__(self, state: AgentState) -> None:
        self.state = state
        self.slots = asyncio.Semaphore(state.config.max_concurrent_tools)
        """One for each tool call that may be in flight."""
        self.starts = asyncio.Semaphore(MAX_STARTS)
        """One for each delegate that may be on its way to the server."""
        self.brought = 0
        """Bytes that the results of this iteration's calls take in the history so far."""
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

    @property
    def setup(self) -> Setup:
        """What the run works with, once it is prepared."""
        if self.state.setup is None:
            raise RuntimeError("the run is not prepared yet")
        return self.state.setup

    @property
    def config(self) -> LoopConfig:
        """The settings that hold now."""
        return self.state.config

    def prepare(self, setup: Setup) -> None:
        """Take the setup in; the slots follow its config."""
        self.state = self.state.with_task(setup=setup)
        self.slots = asyncio.Semaphore(setup.config.max_concurrent_tools)

    def change(
        self, decide: Callable[Concatenate[AgentState, P], AgentState], *args: P.args, **kwargs: P.kwargs
    ) -> None:
        """Set the state to what `decide` makes of it."""
        state = decide(self.state, *args, **kwargs)
        show_change(self.state, state)
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

    @property
    def is_full(self) -> bool:
        """Whether the history is so long that the server will soon end the run without a result."""
        return roll_over.is_full(self.setup, self.length.events, self.length.size)

    async def stood_by(
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
    def is_due(self) -> bool:
        """Whether to continue as new."""
        length = self.length
        return not self.doubts and roll_over.is_due(self.state, self.setup, length.events, length.size, length.is_long)

    def end_if_outgrown(self) -> None:
        """End where the history is long and the state too large to continue as new: there is no other way on."""
        length = self.length
        self.change(roll_over.with_outgrown, self.setup, length.events, length.size, length.is_long)

    def is_interrupted(self) -> bool:
        """Return whether what is in flight has to be cut short: an abort, or the ending is decided."""
        return self.state.aborted is not None or self.state.stop is not None

    def go_on(self) -> None:
        """Do nothing.

        Raises:
            Interrupted: The run is to end.
        """
        if self.is_interrupted():
            raise Interrupted
