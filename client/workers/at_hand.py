"""Keeping a worker at hand while a command needs one: ours when nobody else's polls, a new one when it dies."""

import asyncio
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, suppress

from temporalio.client import Client
from temporalio.service import RPCError

from orga.client.config.worker_order import WorkerOrder
from orga.client.errors import ConfigError
from orga.client.server.endpoint import Report
from orga.client.workers.early_start import dismiss
from orga.client.workers.process import WorkerFailed, WorkerProcess, start_worker
from orga.client.workers.routing import Routing, no_workers_text, routing

CHECK_S = 1.0
HEALTHY_S = 30.0
"""A worker that lived as long is worth another."""
MAX_DEATHS = 3
"""Deaths of young workers in a row, after which no other is started."""

Require = Callable[[], None]
"""Raises what would keep a worker of ours from beginning."""


class WorkerKeeper:
    """Sees to it that some worker polls a task queue."""

    def __init__(self, client: Client, order: WorkerOrder, report: Report, require_usable: Require) -> None:
        self._client = client
        self._order = order
        self._require_usable = require_usable
        self.report = report
        self._started_at = 0.0
        self._deaths = 0
        self.own: WorkerProcess | None = None

    @property
    def is_at_it(self) -> bool:
        """Whether a worker that is missing will be started here."""
        return self._deaths < MAX_DEATHS

    async def ensure(self) -> None:
        """Start a worker unless one polls.

        Raises:
            ConfigError: Ours could not begin.
            WorkerFailed: It did not start, or would get no run: they all go to a version of a deployment.
        """
        there = await routing(self._client, self._order.task_queue)
        if there is None or not there.is_served:
            await self._start(there)
        else:
            dismiss()

    async def keep(self) -> None:
        """Replace a worker that dies, ours or another's, until cancelled or until it is hopeless."""
        while self._deaths < MAX_DEATHS:
            await asyncio.sleep(CHECK_S)
            with suppress(RPCError):  # the server is away: its return is waited for
                await self._replace()

    async def stop(self) -> None:
        """Stop our own worker, if there is one."""
        if self.own is not None:
            await self.own.stop()
            self.own = None

    async def _replace(self) -> None:
        if self.own is not None and self.own.exit_code() is None:
            return
        if self.own is not None:
            young = time.monotonic() - self._started_at < HEALTHY_S
            self._deaths = self._deaths + 1 if young else 1
            self.report(f"worker {self.own.pid} died; its log: {self.own.log}")
            await self.stop()
        there = await routing(self._client, self._order.task_queue)
        if there is None or not there.is_served:
            await self._try_start(there)

    async def _try_start(self, there: Routing | None) -> None:
        try:
            await self._start(there)
        except (ConfigError, WorkerFailed, OSError) as error:
            self._deaths = MAX_DEATHS
            self.report(str(error))

    async def _start(self, there: Routing | None) -> None:
        if there is not None and there.current is not None:
            raise WorkerFailed(no_workers_text(there.current, self._order.task_queue))
        self._require_usable()
        self.report("starting a worker…")
        self.own = await start_worker(self._client, self._order)
        self._started_at = time.monotonic()
        self.report(f"worker {self.own.pid} polls task queue {self._order.task_queue!r}")


@asynccontextmanager
async def keep_worker(
    client: Client, order: WorkerOrder, report: Report, require_usable: Require
) -> AsyncGenerator[WorkerKeeper]:
    """Have a worker polling from here to the end of the block; ours is stopped there.

    Raises:
        ConfigError: None polled, and ours could not begin.
        WorkerFailed: None polled, and ours did not start.
    """
    keeper = WorkerKeeper(client, order, report, require_usable)
    await keeper.ensure()
    keeping = asyncio.create_task(keeper.keep())
    try:
        yield keeper
    finally:
        keeping.cancel()
        try:
            with suppress(asyncio.CancelledError):
                await keeping
        finally:
            await keeper.stop()
