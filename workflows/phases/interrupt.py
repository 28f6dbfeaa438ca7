"""Waiting for activities in a way that an abort or the deadline can cut short."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from temporalio import workflow

CANCEL_GRACE_S = 5.0
"""Seconds that a cancelled activity has to report how it ended; after that its outcome counts as unknown."""

Interrupted = Callable[[], bool]


async def settle(tasks: Sequence[asyncio.Task[Any]], interrupted: Interrupted) -> None:
    """Wait until all tasks are done, or until `interrupted`: then cancel them and give them the grace.

    No timer is started unless something is interrupted, so waiting adds nothing to the history.
    """
    await workflow.wait_condition(lambda: all(task.done() for task in tasks) or interrupted())
    running = [task for task in tasks if not task.done()]
    for task in running:
        task.cancel()
    if running:
        try:
            await workflow.wait_condition(lambda: all(task.done() for task in running), timeout=CANCEL_GRACE_S)
        except TimeoutError:
            workflow.logger.warning("gave up on %d activities that ignore cancellation", len(running))
