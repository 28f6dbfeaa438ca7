"""`ControlledRun`: any run as one value, shared by its phases and handlers. It has the state, the clock, and the waits.

Only this file asks Temporal for the time and the history's length, at points where a replay gets the same answer. A run
uses the time of its own last event: its start, a signal, an update, or the end of an ordinary activity, a timer or a
child. A replay handles these at the same points. After a local activity this is different: a query may end the workflow
task early. The code after the activity then runs in the next task, but during a replay it runs in the same task.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from datetime import UTC, datetime
from typing import Any, Concatenate, Generic, NamedTuple, ParamSpec, TypeVar

from temporalio import workflow
from temporalio.common import SearchAttributeUpdate
from temporalio.exceptions import FailureError, is_cancelled_exception

from orga.workflows.decisions.control import interventions
from orga.workflows.types.control import NOTES_MEMO, Control, Note
from orga.workflows.types.names import ITERATION, PHASE


def event_time() -> datetime:
    """Return the time of the workflow task. Call this only right after an event of the run's own."""
    return workflow.now()


def live_time() -> datetime:
    """Return the time for code without effect on the run: queries, and validators of updates."""
    return workflow.now()


def workflow_task_clock() -> Callable[[], float]:
    """Return a clock with another value in each workflow task. SDK callbacks outside of the loop can use it too."""
    return asyncio.get_running_loop().time


def wall_time() -> datetime:
    """Return the time of the worker that answers a query, because the run's own time stops between its tasks.

    Only queries may use it, since they have no effect on the run.
    """
    with workflow.unsafe.sandbox_unrestricted():
        return max(datetime.now(UTC), workflow.now())


class HistoryLength(NamedTuple):
    """The length of this run's history so far."""

    events: int = 0
    size: int = 0
    """In bytes."""
    is_long: bool = False


def history_length() -> HistoryLength:
    """Return the history's length. Call this when the run's clock advances, never after a local activity."""
    info = workflow.info()
    events, size = info.get_current_history_length(), info.get_current_history_size()
    return HistoryLength(events, size, info.is_continue_as_new_suggested())


CANCEL_GRACE_S = 5.0
"""Seconds for a cancelled activity to report how it ended. After that its outcome counts as unknown."""

CutShort = Callable[[], bool]
"""Returns True if running work has to end."""


def never() -> bool:
    """Return False: no other condition ends the wait."""
    return False


def are_done(tasks: Iterable[asyncio.Task[Any]]) -> bool:
    return all(task.done() for task in tasks)


T = TypeVar("T")


class Interrupted(Exception):
    """The run has to end, or its work was cut short before it had a result."""


S = TypeVar("S", bound=Control)
P = ParamSpec("P")


class BackgroundTaskFailed(Exception):
    """An error in a task of `start_background_task`."""


class ContinueAsNew(Exception):
    """The history is long enough, so the run has to continue as new. It then asks its open questions again."""


class ControlledRun(Generic[S]):
    """Holds the state, and changes it only by pure functions. Their notes are written to the history at once.

    Each kind of run overrides the public views and the condition for continue-as-new.
    """

    def __init__(self, state: S) -> None:
        self.state = state
        # Not `workflow.now()`: a query or a local activity would advance that clock at other points than in a replay.
        self.now = event_time()
        """The time of the run's last own event."""
        self.previous_time = self.now
        """The time before the clock last advanced."""
        self.length = HistoryLength()
        """The history's length at that event."""
        self.is_full = False
        """True if the history is so long that the server will soon terminate the run without a result."""
        self.is_final = False
        """True once the result is final. Later guidance cannot resume the run."""
        self.given_up: list[asyncio.Task[Any]] = []
        """Tasks that ignored their cancellation and end by themselves. See `wait_for_abandoned_tasks`."""
        self.is_cancelled = False
        """True if Temporal has cancelled the run. It then ends like after an abort, but waits for nothing."""
        self.doubtful_aborts = 0
        """The number of aborts that a reset may undo. See `lifetime.ResetWatch`."""
        self._intervention_count = 0
        self._fault: BaseException | None = None

    def details(self, waits: Sequence[str]) -> str:
        """Return the current details in Markdown, for the Temporal UI. `waits` are those of `waiting_lines`."""
        return "\n".join([f"**{self.state.phase}**", "", *waits])

    def progress_attributes(self) -> list[SearchAttributeUpdate[Any]]:
        return [PHASE.value_set(self.state.phase), ITERATION.value_set(self.state.iteration)]

    def observe_notes(self, notes: tuple[Note, ...]) -> None:
        """Report the run's decisions to observers, such as metrics."""

    def change_state(self, decide: Callable[Concatenate[S, P], S], *args: P.args, **kwargs: P.kwargs) -> None:
        state = decide(self.state, *args, **kwargs)
        if state.notes:
            self.observe_notes(state.notes)
            workflow.upsert_memo(
                {NOTES_MEMO: [note.model_dump(mode="json", exclude_unset=True) for note in state.notes]}
            )
            state = state.with_control(notes=())
        self.state = state

    def advance_clock(self) -> datetime:
        """Advance the clock after an event of the run's own, and return the new time.

        Call this when a signal or an update is handled, and when an ordinary activity, a timer or a child has ended,
        but never after a local activity.
        """
        if (now := event_time()) > self.now:
            self.previous_time, self.now = self.now, now
        self.length = history_length()
        self.is_full = interventions.is_history_full(self.state, self.length.events, self.length.size)
        return self.now

    async def wait_for_event(self, ending: Awaitable[T]) -> T:
        """Wait for an ordinary activity, a child or a signal to another run to end, and advance the clock."""
        try:
            ended = await ending
        except FailureError as error:
            if not is_cancelled_exception(error):  # a cancellation may come without an event
                self.advance_clock()
            raise
        self.advance_clock()
        return ended

    def start_timer(self, seconds: float, summary: str) -> asyncio.Task[None]:
        """Start a timer of the server. The task is done once it has fired. Cancel it if it is no longer needed."""
        return self.start_background_task(self.wait_for_event(workflow.sleep(seconds, summary=summary)))

    def watch_for_abort(self) -> CutShort:
        """Return a function that returns True after an abort from now on. An earlier abort does not count."""
        was_aborted = self.state.aborted is not None
        return lambda: self.state.aborted is not None and not was_aborted

    def start_background_task(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Start work that the loop does not wait for. An error in it fails the workflow task, see `wait_until_done`."""
        task = asyncio.create_task(work)
        task.add_done_callback(self._record_fault)
        return task

    def _record_fault(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and self._fault is None:
            self._fault = task.exception()

    async def wait_until_done(self, loop: asyncio.Task[T]) -> T:
        """Wait for the loop. Raise BackgroundTaskFailed if a background task has failed.

        This fails the workflow task, which is retried until the error is fixed. Otherwise a run could lose, for
        example, the watch over its deadline, and nobody would notice.
        """
        await workflow.wait_condition(lambda: loop.done() or self._fault is not None)
        if self._fault is not None:
            raise BackgroundTaskFailed(f"{type(self._fault).__name__}: {self._fault}") from self._fault
        return loop.result()

    def record_intervention(self) -> datetime:
        """Record a signal or an update. Only these make a history grow while the run waits for people."""
        self._intervention_count += 1
        return self.advance_clock()

    async def wait_until(
        self,
        is_over: Callable[[], bool],
        *,
        may_continue_as_new: bool = False,
        timeout_s: float | None = None,
        summary: str | None = None,
    ) -> None:
        """Wait until a condition is true, for any length of time.

        Raise TimeoutError after `timeout_s`. With `may_continue_as_new`, raise ContinueAsNew once signals or updates
        have made the history long enough. The next segment then has to begin this wait without doing anything twice.
        """
        count_before = self._intervention_count

        def must_continue_as_new() -> bool:
            has_grown = self._intervention_count > count_before
            return may_continue_as_new and has_grown and self.is_continue_as_new_due

        await workflow.wait_condition(
            lambda: is_over() or must_continue_as_new(), timeout=timeout_s, timeout_summary=summary
        )
        if not is_over():
            raise ContinueAsNew

    async def wait_until_resumed(self) -> None:
        """Wait while people have paused the run, or until it is interrupted."""
        if self.state.paused:
            await workflow.wait_condition(lambda: not self.state.paused or self.is_interrupted())

    async def settle_tasks(self, tasks: Sequence[asyncio.Task[Any]], is_cut_short: CutShort) -> None:
        """Wait until all tasks are done. If they are cut short, cancel them and wait for `CANCEL_GRACE_S`.

        Only an interruption starts a timer. Otherwise the wait adds nothing to the history.
        """
        await workflow.wait_condition(lambda: are_done(tasks) or is_cut_short())
        running = [task for task in tasks if not task.done()]
        if not running:
            return
        for task in running:
            task.cancel()
        try:
            await workflow.wait_condition(
                lambda: are_done(running), timeout=CANCEL_GRACE_S, timeout_summary="for what was cancelled to end"
            )
        except TimeoutError:
            workflow.logger.warning("gave up on %d activities that ignore cancellation", len(running))
            self.given_up += [task for task in running if not task.done()]

    async def wait_for_result(self, task: asyncio.Task[T], is_cut_short: CutShort) -> T:
        """Return the task's result. Raise Interrupted if it is cut short before it succeeds."""
        await self.settle_tasks([task], is_cut_short)
        has_succeeded = task.done() and not task.cancelled() and task.exception() is None
        if is_cut_short() and not has_succeeded:
            raise Interrupted
        return task.result()

    async def wait_for_activity(self, activity: Coroutine[Any, Any, T]) -> T:
        """Return the activity's result, and advance the clock. Raise Interrupted if the run is interrupted first."""
        task = asyncio.create_task(self.wait_for_event(activity))
        try:
            return await self.wait_for_result(task, self.is_interrupted)
        except asyncio.CancelledError:  # this wait is part of a call, which is cut short
            task.cancel()
            raise

    async def wait_for_abandoned_tasks(self) -> None:
        """Wait for the tasks that were given up, because they could still act. An abort ends the wait."""
        await workflow.wait_condition(lambda: self.state.aborted is not None or are_done(self.given_up))
        self.given_up.clear()

    @property
    def is_continue_as_new_due(self) -> bool:
        """True if the run has to continue as new. It never is while an abort is in doubt."""
        return not self.doubtful_aborts and self.is_history_long

    @property
    def is_history_long(self) -> bool:
        """True if the history is long enough for continue-as-new, and neither an end nor work elsewhere prevents it."""
        length = self.length
        return interventions.should_continue_as_new(self.state, length.events, length.size, length.is_long)

    def paused_seconds(self) -> float:
        """Return the seconds that people have held up the run so far, by a pause or by open questions."""
        return self.state.clock.paused_seconds(self.now)

    def was_paused_since(self, paused_before_s: float) -> bool:
        """Return True if the run was paused after `paused_seconds()` gave this. Permissions are then judged again."""
        return self.paused_seconds() != paused_before_s

    def is_interrupted(self) -> bool:
        """Return True if running work has to be cut short, because of an abort or another ending."""
        return self.state.aborted is not None or self.state.stop is not None

    def raise_if_interrupted(self) -> None:
        if self.is_interrupted():
            raise Interrupted


AnyRun = ControlledRun[Any]
