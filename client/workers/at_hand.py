"""Keeps a worker running while a command needs one. It starts one if no worker polls or the last one dies."""

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
"""Seconds. A worker that lived this long is worth replacing."""
MAX_DEATHS = 3
"""Early deaths in a row, after which no other worker is started."""

Require = Callable[[], None]
"""Raises the reason why a worker of ours could not start."""


class WorkerKeeper:
    """Makes sure that some worker polls a task queue."""

    def __init__(self, client: Client, order: WorkerOrder, report: Report, require_usable: Require) -> None:
        self._client = client
        self._order = order
        self._require_usable = require_usable
        self.report = report
        self._started_at = 0.0
        self._deaths = 0
        self.own: WorkerProcess | None = None

    @property
    def is_keeping(self) -> bool:
        """True if a missing worker will be started."""
        return self._deaths < MAX_DEATHS

    async def ensure(self) -> None:
        """Start a worker unless one polls.

        Raises:
            ConfigError: Our worker could not start with this configuration.
            WorkerFailed: Our worker did not start, or would get no run because all go to a version of a deployment.
        """
        there = await routing(self._client, self._order.task_queue)
        if there is None or not there.is_served:
            await self._start(there)
        else:
            dismiss()

    async def keep(self) -> None:
        """Replace any worker that dies, until this is cancelled or three die early in a row."""
        while self._deaths < MAX_DEATHS:
            await asyncio.sleep(CHECK_S)
            with suppress(RPCError):  # the server is away: wait until it returns
                await self._replace()

    async def stop(self) -> None:
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
    """Keep a worker polling until the block ends, then stop our own. Raise ConfigError or WorkerFailed as `ensure`."""
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
