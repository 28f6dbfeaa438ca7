"""The lifetime of a run: resets, watches next to the loop, cancellation, continue-as-new.

Watches end the run for reasons that no phase checks: a full history, and the deadline. The deadline has one timer,
which is restarted when the clock changes.
"""

import asyncio
from collections.abc import Callable, Coroutine
from datetime import datetime
from typing import Any, NamedTuple, NoReturn, TypeVar

from temporalio import workflow

from orga.workflows.decisions.control import interventions
from orga.workflows.decisions.control.interventions import (
    parse_rewind,
    remaining_s,
    with_abort,
    with_end_at_full_history,
    with_end_by_timeout,
    with_rewind,
    with_rewind_guidance,
)
from orga.workflows.phases.control.ask_people import QuestionAnnouncer
from orga.workflows.phases.control.run import AnyRun, workflow_task_clock
from orga.workflows.types.control import Control, Intervention, Rewind

ABORT_CONFIRMATION_S = 0.001
"""Seconds until an abort that came together with a rewind counts. The SDK reports a reset in the same workflow task, or
never.
"""


class _RewindClaim(NamedTuple):
    """The signals `rewound` of one workflow task, which claim that the run was reset."""

    rewinds: tuple[Rewind, ...]
    """Rewinds in order. Signals of earlier rewinds are delivered again, and the last one belongs to the reset
    itself.
    """
    task: float
    """The value of `workflow_task_clock` in that task."""
    since: datetime
    """The time of the run's last event before this task."""
    aborted: str | None = None
    """The reason of an abort that came before them in the same task."""


class ResetWatch:
    """Accepts the signal `rewound` only in the first task after a reset. At any other time the signal has no effect.

    After a reset the server delivers earlier signals again, and one of them may be an abort. The SDK reports the reset
    after all signals of that task. So an abort in the same task as `rewound` waits for this report.
    """

    def __init__(self, run: AnyRun) -> None:
        """Register for resets. Call this inside the workflow."""
        self._run = run
        self._claim: _RewindClaim | None = None
        self._abort_task = 0.0
        self._reset_task = 0.0
        self._task_clock = workflow_task_clock()
        workflow.register_random_seed_callback(self._record_reset)

    def record_abort(self, abort: Intervention) -> None:
        if self._run.state.aborted is None:
            self._abort_task = self._task_clock()
        self._run.change_state(interventions.with_sent_abort, abort)

    def record_rewind(self, raw: object) -> None:
        self._run.record_intervention()
        rewind = parse_rewind(raw)
        if rewind is None:
            return
        task = self._task_clock()
        earlier = self._claim.rewinds if self._claim is not None and self._claim.task == task else ()
        claim = _RewindClaim((*earlier, rewind), task, self._run.previous_time)
        if self._run.state.aborted is not None and self._abort_task == claim.task:
            claim = claim._replace(aborted=self._run.state.aborted)
            self._run.state = self._run.state.with_control(aborted=None)
            self._run.start_background_task(self._drop_unconfirmed(claim))
        self._claim = claim
        if self._reset_task == claim.task:
            self._confirm_rewind(claim)

    def _record_reset(self, seed: int) -> None:
        """Record the reset. This only records, because the SDK calls it outside of the loop and hides exceptions."""
        self._reset_task = self._task_clock()
        if self._claim is not None and self._claim.task == self._reset_task:
            self._confirm_rewind(self._claim)

    def _confirm_rewind(self, claim: _RewindClaim) -> None:
        state = self._run.state
        for rewind in claim.rewinds:
            state = with_rewind_guidance(state, rewind)
        self._run.state = with_rewind(state, claim.rewinds[-1], claim.since, self._run.now)

    async def _drop_unconfirmed(self, claim: _RewindClaim) -> None:
        self._run.doubtful_aborts += 1
        await self._run.wait_for_event(workflow.sleep(ABORT_CONFIRMATION_S, summary="for news of a rewind"))
        self._run.doubtful_aborts -= 1
        if self._reset_task != claim.task and claim.aborted is not None:
            self._run.change_state(interventions.with_abort, claim.aborted)


T = TypeVar("T")

Watch = Callable[[Any], Coroutine[Any, Any, None]]
"""A function that watches some part of a run until its task is cancelled."""


async def run_to_completion(run: AnyRun, loop: Coroutine[Any, Any, T]) -> T:
    """Return the result of the loop. If Temporal cancels the run, it ends like after an abort, with a result."""
    task = asyncio.create_task(loop)
    try:
        return await run.wait_until_done(task)
    except asyncio.CancelledError:
        run.advance_clock()
        run.is_cancelled = True
        run.change_state(with_abort, "cancelled")
        return await run.wait_until_done(task)


def continue_as_new(state: Control) -> NoReturn:
    """End this segment, and begin the next. Its `@workflow.init` gets None as the input, and then the state."""
    # With worker deployments, the current version continues the run.
    current = workflow.ContinueAsNewVersioningBehavior.AUTO_UPGRADE
    # The server carries all attributes over, unset ones as null, and no worker can begin a run with a null time.
    info = workflow.info()
    carried = None if all(info.search_attributes.values()) else info.typed_search_attributes
    workflow.continue_as_new(args=[None, state], initial_versioning_behavior=current, search_attributes=carried)


class RunWatches:
    """The watches next to the loop: the deadline, the history's length, notifications, and `others`."""

    def __init__(self, run: AnyRun, *others: Watch) -> None:
        self._run = run
        self._announcer = QuestionAnnouncer(run)
        self._watches: tuple[Watch, ...] = (watch_clock, watch_length, *others)
        self._tasks = list[asyncio.Task[None]]()

    def start(self) -> None:
        """Start the watches. An error in one fails the workflow task, see `ControlledRun.wait_until_done`."""
        self._tasks = [self._run.start_background_task(watch(self._run)) for watch in self._watches]
        self._announcer.start()

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await self._announcer.stop()


async def watch_clock(run: AnyRun) -> None:
    """End the run each time when its time is up, until the task is cancelled."""
    while True:
        await workflow.wait_condition(lambda: run.state.clock.stopped_at is None and not run.is_interrupted())
        if remaining_s(run.state, run.now) <= 0:
            run.change_state(with_end_by_timeout)
            continue
        await _wait_for_clock_change(run, run.state.timeout_s)


async def _wait_for_clock_change(run: AnyRun, limit_s: float) -> None:
    left = remaining_s(run.state, run.now)
    try:
        await workflow.wait_condition(
            lambda: run.state.clock.stopped_at is not None or run.state.timeout_s != limit_s,
            timeout=left,
            timeout_summary="time limit",
        )
    except TimeoutError:
        run.advance_clock()


async def watch_length(run: AnyRun) -> None:
    """End the run when its history is full, until the task is cancelled."""
    await workflow.wait_condition(lambda: run.is_full)
    run.change_state(with_end_at_full_history, run.length.events, run.length.size)
