"""Ends a worker: it takes no more tasks and lets its calls end. Only a signal makes it cut them off.

Other runs of the folder may use the worker of a command that ends. If one of their calls were cut off, it would be made
again, or its outcome would be unknown.
"""

import asyncio
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from temporalio import activity
from temporalio.worker import ActivityInboundInterceptor, ExecuteActivityInput, Interceptor, Worker

from orga.activities.calls.activity import worker_stopped_error
from orga.client.workers.core_faults import SHUTDOWN_GRACE
from orga.client.workers.early_start import ENDING_MESSAGE

NO_LIMIT = timedelta(days=365)
"""The grace of the SDK's workers, which cannot change once they run. Calls have time limits of their own."""

CALLS_NAMED = 3
"""Calls that the text about an ending worker names. It counts the others."""


class WorkerEnd(Interceptor):
    """The way in which a worker process ends. As the innermost interceptor of its workers, it knows their calls."""

    def __init__(self) -> None:
        self._begun = asyncio.Event()
        self._calls: dict[asyncio.Task[Any], str] = {}
        """Texts that name the running calls."""
        self._cut_off: set[asyncio.Task[Any]] = set()

    def finish(self) -> None:
        """Take no more tasks. Running calls have as much time as they need."""
        self._begun.set()

    def stop(self) -> None:
        """Do as `finish`, and cut off the calls that still run after `SHUTDOWN_GRACE`."""
        self.finish()
        asyncio.get_running_loop().call_later(SHUTDOWN_GRACE.total_seconds(), self.cut_off)

    def cut_off(self) -> None:
        """Cancel all running calls. They fail as calls of a stopped worker, so that their runs may make them again."""
        for call in self._calls:
            self._cut_off.add(call)
            call.cancel()

    async def wait_for_begin(self) -> None:
        """Wait until the worker has to end. If the wait fails, end it as by `stop`."""
        try:
            await self._begun.wait()
        except BaseException:
            self.stop()
            raise

    def __str__(self) -> str:
        """Return a line for the worker's log that names what still runs."""
        if not self._calls:
            return ENDING_MESSAGE
        named = ", ".join(list(self._calls.values())[:CALLS_NAMED])
        more = f" and {len(self._calls) - CALLS_NAMED} more" if len(self._calls) > CALLS_NAMED else ""
        return f"{ENDING_MESSAGE}, after its calls: {named}{more}"

    def intercept_activity(self, next: ActivityInboundInterceptor) -> ActivityInboundInterceptor:
        return _EndingInbound(next, self._calls, self._cut_off)


class _EndingInbound(ActivityInboundInterceptor):
    def __init__(
        self, next: ActivityInboundInterceptor, calls: dict[asyncio.Task[Any], str], cut_off: set[asyncio.Task[Any]]
    ) -> None:
        super().__init__(next)
        self._calls = calls
        self._cut_off = cut_off

    async def execute_activity(self, input: ExecuteActivityInput) -> Any:
        task, info = asyncio.current_task(), activity.info()
        assert task is not None
        self._calls[task] = f"{info.activity_type} of {info.workflow_id}"
        try:
            return await super().execute_activity(input)
        except asyncio.CancelledError:
            details = activity.cancellation_details()
            is_cancelled_by_run = details is not None and details.cancel_requested
            if is_cancelled_by_run or task not in self._cut_off:
                raise
            raise worker_stopped_error() from None
        finally:
            del self._calls[task]
            self._cut_off.discard(task)


async def end_workers(workers: Sequence[Worker]) -> None:
    """End the workers of a process at the same time, so that none takes tasks while another one ends."""
    await asyncio.gather(*(worker.shutdown() for worker in workers))
