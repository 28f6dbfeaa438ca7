"""Bounds the end of a worker: with the SDK alone, one that stops or never starts could be waited for without end."""

import asyncio
import logging
from collections.abc import Awaitable, Generator
from contextlib import contextmanager
from datetime import timedelta
from typing import Protocol, cast

from temporalio.worker import Worker

SHUTDOWN_GRACE = timedelta(seconds=10)
"""Time for running activities to end after the worker is asked to stop. The SDK would cancel them at once."""

LAST_S = 3.0
"""Seconds for the last step of a shutdown, after all polls and completions. It usually takes milliseconds.

Together with `SHUTDOWN_GRACE` it is less than the time that the command waits (`STOP_TIMEOUT_S`)."""

_log = logging.getLogger(__name__)


class _Bridge(Protocol):
    def initiate_shutdown(self) -> None: ...

    def finalize_shutdown(self) -> Awaitable[None]: ...


def bound_shutdown(worker: Worker) -> Worker:
    """Return the worker with a time limit for its last step.

    In that step the SDK's core (sdk-rust issue 1537) may wait forever for an activity that completed while the shutdown
    began. The Python SDK has no API for this step, and treats an error in it as its end.
    """
    bridge = cast("_Bridge", worker._bridge_worker)
    finalize = bridge.finalize_shutdown

    async def finalize_in_time() -> None:
        try:
            await asyncio.wait_for(finalize(), LAST_S)
        except TimeoutError:
            _log.warning("the worker of %r has ended, except for the SDK's own clean-up", worker.task_queue)

    bridge.finalize_shutdown = finalize_in_time
    return worker


@contextmanager
def end_if_not_begun(worker: Worker) -> Generator[None]:
    """Mark a worker as ended if something fails before it starts to run.

    Otherwise `async with Worker(...)` waits for an end that only a run would report, and does not raise the failure.
    And its client allows no other worker on the task queue until this one is asked to stop.
    """
    try:
        yield
    except BaseException:
        cast("_Bridge", worker._bridge_worker).initiate_shutdown()
        worker._shutdown_complete_event.set()
        raise
