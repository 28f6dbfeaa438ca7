"""A worker ends that is told to stop, or that never begins: by the SDK alone it would be waited for without end."""

import asyncio
import logging
from collections.abc import Awaitable, Generator
from contextlib import contextmanager
from datetime import timedelta
from typing import Protocol, cast

from temporalio.worker import Worker

SHUTDOWN_GRACE = timedelta(seconds=10)
"""What activities in flight get to end in, once the worker is told to stop: the SDK would cancel them at once."""

LAST_S = 3.0
"""For the last step of a shutdown, behind all polls and completions; it usually takes milliseconds.

With what a worker gives its activities (`SHUTDOWN_GRACE`) it is less than what its command waits (`STOP_TIMEOUT_S`)."""

_log = logging.getLogger(__name__)


class _Bridge(Protocol):
    def initiate_shutdown(self) -> None: ...

    def finalize_shutdown(self) -> Awaitable[None]: ...


def bound_shutdown(worker: Worker) -> Worker:
    """Return the worker, whose last step is bounded.

    The SDK's core (sdk-rust issue 1537) may wait forever there for the word of an activity that completed while the
    shutdown began. The SDK for Python has no API for that step, and takes an error in it for its end.
    """
    bridge = cast("_Bridge", worker._bridge_worker)
    finalize = bridge.finalize_shutdown

    async def finalize_in_time() -> None:
        try:
            await asyncio.wait_for(finalize(), LAST_S)
        except TimeoutError:
            _log.warning("the worker of %r has ended, but for the SDK's own clean-up", worker.task_queue)

    bridge.finalize_shutdown = finalize_in_time
    return worker


@contextmanager
def end_if_not_begun(worker: Worker) -> Generator[None]:
    """Let a worker be one that has ended where what stands ahead of its begin fails.

    `async with Worker(...)` waits for its end, which nothing but its run would tell, ahead of raising the failure; and
    until it is told to stop, its client lets no other worker have its task queue.
    """
    try:
        yield
    except BaseException:
        cast("_Bridge", worker._bridge_worker).initiate_shutdown()
        worker._shutdown_complete_event.set()
        raise
