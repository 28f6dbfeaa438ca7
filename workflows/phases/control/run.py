"""Any run as one value, shared by its phases and its handlers: its state, its clock, what cuts its waits short.

Only here is Temporal asked for the time and the history's length, where a replay gets the same answer. A run goes by
the time of the last event of its own: its start, a signal, an update, the end of an ordinary activity, a timer, a
child. A replay takes those in where the run took them in. What follows a local activity is no such place: when a query
ends the workflow task early it runs in the next task, and in this one when it is replayed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from datetime import UTC, datetime
from shlex import quote
from typing import Any, Concatenate, Generic, NamedTuple, ParamSpec, TypeVar

from temporalio import workflow
from temporalio.common import SearchAttributeUpdate
from temporalio.exceptions import FailureError, is_cancelled_exception

from orga.workflows.decisions.control import interventions
from orga.workflows.decisions.control.notifications import commands, question_markdown
from orga.workflows.types.control import NOTES_MEMO, Control, Note
from orga.workflows.types.names import ITERATION, PHASE
from orga.workflows.types.questions import ShownQuestion
from orga.workflows.types.text import can_be_typed, markdown_code


def event_time() -> datetime:
    """Return the time of the workflow task; to be asked only where the task has just brought an event of its own."""
    return workflow.now()


def live_time() -> datetime:
    """Return the time for what leaves no trace in the run: queries, and validators of updates."""
    return workflow.now()


def workflow_task_clock() -> Callable[[], float]:
    """Return what tells one workflow task from another, also where the SDK calls the run outside of its loop."""
    return asyncio.get_running_loop().time


def wall_time() -> datetime:
    """Return the time of the worker that answers a query: the run's own stands still between its tasks.

    For nothing but queries, which leave no trace.
    """
    with workflow.unsafe.sandbox_unrestricted():
        return max(datetime.now(UTC), workflow.now())


class HistoryLength(NamedTuple):
    """Of the history of this run, so far."""

    events: int = 0
    size: int = 0
    """In bytes."""
    is_long: bool = False
    """Whether the server suggests to continue as new."""


def history_length() -> HistoryLength:
    """Return it; to be asked where the run's clock is moved on, never behind a local activity."""
    info = workflow.info()
    events, size = info.get_current_history_length(), info.get_current_history_size()
    return HistoryLength(events, size, info.is_continue_as_new_suggested())


CANCEL_GRACE_S = 5.0
"""Seconds that a cancelled activity has to report how it ended; after that its outcome counts as unknown."""

CutShort = Callable[[], bool]
"""Whether what is under way has to end."""

T = TypeVar("T")


class Interrupted(Exception):
    """The run is to end, or what was under way was cut short, before this came to anything."""


S = TypeVar("S", bound=Control)
P = ParamSpec("P")


class DefectBeside(Exception):
    """An error in what goes on beside the loop."""


class ContinueAsNew(Exception):
    """The history has grown enough while people were waited for: the run continues as new, and asks them on."""


class ControlledRun(Generic[S]):
    """Holds the state, and changes it through pure functions only; what they note goes into the history at once.

    A workflow's own run says by overriding what it shows of itself, and whether its state can be carried on.
    """

    def __init__(self, state: S) -> None:
        self.state = state
        # Not `workflow.now()`: a query or a local activity would move that clock at another point than in a replay.
        self.now = event_time()
        """Of the last event of the run's own."""
        self.before = self.now
        """The time before the clock was last moved on."""
        self.length = HistoryLength()
        """Of the history, at that event."""
        self.is_full = False
        """Whether the history is so long that the server will soon end the run without a result."""
        self.is_final = False
        """Whether the ending stands, and no guidance makes the run go on any more."""
        self.given_up: list[asyncio.Task[Any]] = []
        """What ignores its cancellation, and ends by itself; see `until_nothing_runs`."""
        self.is_cancelled = False
        """Whether Temporal has cancelled it, which is an abort that waits for nothing more."""
        self.doubts = 0
        """How many aborts wait for word of a reset; see `lifetime.Resets`."""
        self._intervention_count = 0
        self._fault: BaseException | None = None

    def details(self) -> str:
        """Return the current details, in Markdown, for the Temporal UI."""
        return "\n".join([f"**{self.state.phase}**", "", *self.waits()])

    def waits(self) -> list[str]:
        """Return in Markdown what the run waits for people for, and which commands decide it."""
        run_id = workflow.info().workflow_id
        resume = f": {markdown_code(f'orga resume {quote(run_id)}')} lets it go on" if can_be_typed(run_id) else ""
        paused = [f"- paused{resume}"] if self.state.paused else []
        asked = self.state.open_questions
        return [
            *paused,
            *(line for each in asked for line in question_markdown(self.state, each, run_id, self.commands)),
        ]

    def progress(self) -> list[SearchAttributeUpdate[Any]]:
        """Return the search attributes that tell how far the run is."""
        return [PHASE.value_set(self.state.phase), ITERATION.value_set(self.state.iteration)]

    def commands(self, run_id: str, wait: ShownQuestion) -> list[str]:
        """Return the commands of which one decides what the run asks."""
        return commands(run_id, wait)

    def watch_notes(self, notes: tuple[Note, ...]) -> None:
        """Tell what the run has decided to who watches."""

    def change(self, decide: Callable[Concatenate[S, P], S], *args: P.args, **kwargs: P.kwargs) -> None:
        """Set the state to what `decide` makes of it."""
        state = decide(self.state, *args, **kwargs)
        if state.notes:
            self.watch_notes(state.notes)
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
        if (now := event_time()) > self.now:
            self.before, self.now = self.now, now
        self.length = history_length()
        self.is_full = interventions.is_history_full(self.state, self.length.events, self.length.size)
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
        task.add_done_callback(self._record_fault)
        return task

    def _record_fault(self, task: asyncio.Task[None]) -> None:
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
        self._intervention_count += 1
        return self.tick()

    async def wait_until(
        self,
        is_over: Callable[[], bool],
        *,
        may_roll_over: bool = False,
        timeout_s: float | None = None,
        summary: str | None = None,
    ) -> None:
        """Wait until it is over, as long as it takes.

        Args:
            is_over: What is waited for.
            may_roll_over: Whether the next run could begin this wait anew without doing anything twice.
            timeout_s: After which a `TimeoutError` is raised.
            summary: Of the timer, in the Temporal UI.

        Raises:
            RollOver: The history has grown enough, by messages that came meanwhile.
        """
        heard = self._intervention_count
        await workflow.wait_condition(
            lambda: is_over() or (may_roll_over and self._intervention_count > heard and self.is_due),
            timeout=timeout_s,
            timeout_summary=summary,
        )
        if not is_over():
            raise ContinueAsNew

    async def settle(self, tasks: Sequence[asyncio.Task[Any]], is_cut_short: CutShort) -> None:
        """Wait until all tasks are done, or until they are cut short: then cancel them and give them the grace.

        No timer is started unless something is interrupted, so waiting adds nothing to the history.
        """
        await workflow.wait_condition(lambda: all(task.done() for task in tasks) or is_cut_short())
        running = [task for task in tasks if not task.done()]
        for task in running:
            task.cancel()
        if running:
            try:
                await workflow.wait_condition(
                    lambda: all(task.done() for task in running),
                    timeout=CANCEL_GRACE_S,
                    timeout_summary="for what was cancelled to end",
                )
            except TimeoutError:
                workflow.logger.warning("gave up on %d activities that ignore cancellation", len(running))
                self.given_up += [task for task in running if not task.done()]

    async def result_of(self, task: asyncio.Task[T], is_cut_short: CutShort) -> T:
        """Return what the task comes to; what has succeeded by then counts.

        Raises:
            Interrupted: It was cut short before.
        """
        await self.settle([task], is_cut_short)
        if is_cut_short() and (not task.done() or task.cancelled() or task.exception() is not None):
            raise Interrupted
        return task.result()

    async def until_nothing_runs(self) -> None:
        """Wait for what was given up on to end by itself, unless the run is aborted: it could act on for longer."""
        await workflow.wait_condition(
            lambda: self.state.aborted is not None or all(task.done() for task in self.given_up)
        )
        self.given_up.clear()

    @property
    def is_due(self) -> bool:
        """Whether to continue as new: never while an abort is in doubt."""
        return not self.doubts and self.can_be_carried(self.length)

    def can_be_carried(self, so_far: HistoryLength) -> bool:
        """Return whether the history is long enough to be left behind, and the state can be carried on."""
        return interventions.should_continue_as_new(self.state, so_far.events, so_far.size, so_far.is_long)

    def held_up_s(self) -> float:
        """Return the seconds for which people have held the run up so far, by a pause or by what they were asked."""
        return self.state.clock.stood_still_s(self.now)

    def was_held_up(self, since_s: float) -> bool:
        """Return whether they have since it was so many: what was allowed by then is to be judged once more."""
        return self.held_up_s() != since_s

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
