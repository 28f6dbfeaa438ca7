"""Waiting for activities in a way that an abort or the deadline can cut short."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from temporalio import workflow

CANCEL_GRACE_S = 5.0
"""Seconds that a cancelled activity has to report how it ended; after that its outcome counts as unknown."""

CutShort = Callable[[], bool]
"""Whether what is under way has to end."""

T = TypeVar("T")


class Interrupted(Exception):
    """The run is to end, or what was under way was cut short, before this came to anything."""


async def settle(tasks: Sequence[asyncio.Task[Any]], is_cut_short: CutShort) -> None:
    """Wait until all tasks are done, or until they are cut short: then cancel them and give them the grace.

    No timer is started unless something is interrupted, so waiting adds nothing to the history.
    """
    await workflow.wait_condition(lambda: all(task.done() for task in tasks) or is_cut_short())
    running = [task for task in tasks if not task.done()]
    for task in running:
        task.cancel()
    if running:
        try:
            await workflow.wait_condition(lambda: all(task.done() for task in running), timeout=CANCEL_GRACE_S)
        except TimeoutError:
            workflow.logger.warning("gave up on %d activities that ignore cancellation", len(running))


async def result_of(task: asyncio.Task[T], is_cut_short: CutShort) -> T:
    """Return what the task comes to; what has succeeded by then counts.

    Raises:
        Interrupted: It was cut short before.
    """
    await settle([task], is_cut_short)
    if is_cut_short() and (not task.done() or task.cancelled() or task.exception() is not None):
        raise Interrupted
    return task.result()
