"""The only place that asks Temporal for the time and the history's length, where a replay gets the same answer.

A run goes by the time of the last event of its own: its start, a signal, an update, the end of an ordinary activity, a
timer, a child. A replay takes those in where the run took them in. What follows a local activity is no such place:
when a query ends the workflow task early it runs in the next task, and in this one when it is replayed.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
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


@dataclass(frozen=True)
class Length:
    """Of the history of this run, so far."""

    events: int = 0
    size: int = 0
    """In bytes."""
    is_long: bool = False
    """Whether the server suggests to continue as new."""


def length() -> Length:
    """Return it; to be asked where the run's clock is moved on, never behind a local activity (see `clock`)."""
    info = workflow.info()
    events, size = info.get_current_history_length(), info.get_current_history_size()
    return Length(events, size, info.is_continue_as_new_suggested())
