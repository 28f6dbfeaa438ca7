"""The only place that asks Temporal for the time, and how the run's own clock is moved on.

A run goes by the time of the last event of its own: its start, a signal, an update, the end of an ordinary activity, a
timer, a child. A replay takes those in where the run took them in. What follows a local activity is no such place:
when a query ends the workflow task early it runs in the next task, and in this one when it is replayed.
"""

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime

from temporalio import workflow


def event_time() -> datetime:
    """Return the time of the workflow task; to be asked only where the task has just brought an event of its own."""
    return workflow.now()


def live_time() -> datetime:
    """Return the time for what leaves no trace in the run: queries, and validators of updates."""
    return workflow.now()


def task_clock() -> Callable[[], float]:
    """Return what tells one workflow task from another, also where the SDK calls the run outside of its loop."""
    return asyncio.get_running_loop().time


def wall_time() -> datetime:
    """Return the time of the worker that answers a query: the run's own stands still between its tasks.

    For nothing but queries, which leave no trace.
    """
    with workflow.unsafe.sandbox_unrestricted():
        return max(datetime.now(UTC), workflow.now())
