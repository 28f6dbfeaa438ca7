"""Helpers for every activity: the run that it belongs to, heartbeats, log context, and error texts."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import structlog
from temporalio import activity
from temporalio.exceptions import ApplicationError

from orga.activities.ports import RunKey
from orga.workflows.types.tool_calls.tools import WORKER_SHUTDOWN


def current_run_key() -> RunKey:
    info = activity.info()
    return RunKey(info.workflow_id or "", info.workflow_run_id or "")


def log_iteration(iteration: int) -> None:
    """Add the iteration to all log records of this activity. Each activity has its own context to change."""
    structlog.contextvars.bind_contextvars(iteration=iteration)


def log_iteration_of_call(activity_id: str) -> None:
    """Add the iteration of a tool call, whose id is `iteration.index`."""
    iteration = activity_id.partition(".")[0]
    if iteration.isdecimal():
        log_iteration(int(iteration))


@contextmanager
def shutdown_as_failure() -> Generator[None]:
    """Turn a cancellation by the worker's shutdown into a failure. Other cancellations stay cancellations."""
    try:
        yield
    except asyncio.CancelledError:
        details = activity.cancellation_details()
        if details is not None and details.worker_shutdown:
            raise ApplicationError("the worker was stopped meanwhile", type=WORKER_SHUTDOWN) from None
        raise


HEARTBEAT_INTERVAL_S = 0.5
"""The time between heartbeats. The answer to a heartbeat delivers a cancellation."""

CHANGED_HEARTBEAT_S = 0.2
"""The time between heartbeats while the details change."""


@asynccontextmanager
async def heartbeats(details: Callable[[], Any]) -> AsyncGenerator[None]:
    """Heartbeat with `details()` until the block ends, sooner if they changed.

    In a local activity or outside of activities there are no heartbeats, and this does nothing.
    """
    if not activity.in_activity() or activity.info().is_local:
        yield
        return
    beat = asyncio.create_task(_send_heartbeats(details))
    try:
        yield
    finally:
        beat.cancel()


async def _send_heartbeats(details: Callable[[], Any]) -> None:
    last: Any = None
    while True:
        for _ in range(round(HEARTBEAT_INTERVAL_S / CHANGED_HEARTBEAT_S)):
            await asyncio.sleep(CHANGED_HEARTBEAT_S)
            if details() != last:
                break
        last = details()
        activity.heartbeat(last)


def error_text(error: BaseException) -> str:
    """Return the error's text. Its `__str__` is code too, and may raise."""
    try:
        return str(error)
    except Exception as failure:
        return f"(its text cannot be had: {type(failure).__name__})"
