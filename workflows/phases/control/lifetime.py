"""From a run's start to its end: what is watched beside the loop, a cancellation, continuing as new.

Ends that no phase looks out for are watched for: a full history, and the deadline, one timer that is started anew when
need be.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, NoReturn, TypeVar

from temporalio import workflow

from orga.workflows.decisions.control.interventions import with_abort
from orga.workflows.decisions.control.limits import out_of_time, remaining_s, with_full_history
from orga.workflows.phases.control.notifications import Announcer
from orga.workflows.phases.control.run import ControlledRun
from orga.workflows.types.control import Control

T = TypeVar("T")

Watch = Callable[[Any], Coroutine[Any, Any, None]]
"""Looks after something of a run until it is cancelled."""


async def run_to_an_end(run: ControlledRun[Any], loop: Coroutine[Any, Any, T]) -> T:
    """Return what the loop comes to. Temporal's own cancellation ends a run as an abort does, with a result."""
    task = asyncio.create_task(loop)
    try:
        return await run.until_done(task)
    except asyncio.CancelledError:
        run.tick()
        run.change(with_abort, "cancelled")
        return await run.until_done(task)


def continue_as_new(state: Control) -> NoReturn:
    """End this run, and begin the next of the chain with the state; `@workflow.init` gets it behind the input."""
    # Of the deployment's versions the current one goes on, where there are any.
    current = workflow.ContinueAsNewVersioningBehavior.AUTO_UPGRADE
    workflow.continue_as_new(args=[None, state], initial_versioning_behavior=current)


class Watches:
    """All that goes on beside the loop: the deadline, the history's length, word to people outside, and `others`."""

    def __init__(self, run: ControlledRun[Any], *others: Watch) -> None:
        self._run = run
        self._announcer = Announcer(run)
        self._watches: tuple[Watch, ...] = (watch_clock, watch_length, *others)
        self._tasks = list[asyncio.Task[None]]()

    def start(self) -> None:
        """Begin; an error in one of them fails the workflow task, see `ControlledRun.until_done`."""
        self._tasks = [self._run.beside(watch(self._run)) for watch in self._watches]
        self._announcer.start()

    def stop(self) -> Awaitable[None]:
        """End them, before the run ends or continues as new."""
        for task in self._tasks:
            task.cancel()
        return self._announcer.stop()


async def watch_clock(run: ControlledRun[Any]) -> None:
    """End the run whenever its time is up, until the task is cancelled."""
    while True:
        await workflow.wait_condition(lambda: run.state.clock.stopped_at is None and not run.is_interrupted())
        if remaining_s(run.state, run.now) <= 0:
            run.change(out_of_time)
            continue
        await _until_checked(run, run.state.terms.timeout_s)


async def _until_checked(run: ControlledRun[Any], limit_s: float) -> None:
    """Wait until the time is up as it looks now, or something about it changes."""
    left = remaining_s(run.state, run.now)
    try:
        await workflow.wait_condition(
            lambda: run.state.clock.stopped_at is not None or run.state.terms.timeout_s != limit_s, timeout=left
        )
    except TimeoutError:
        run.tick()


async def watch_length(run: ControlledRun[Any]) -> None:
    """End the run when its history is full, until the task is cancelled."""
    await workflow.wait_condition(lambda: run.is_full)
    run.change(with_full_history, run.length.events, run.length.size)
