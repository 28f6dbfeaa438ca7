"""Starts and ends the worker process of a command, or keeps one running while the command needs a worker."""

import asyncio
import signal
import subprocess
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import IO

from temporalio.client import Client
from temporalio.service import RPCError

from orga.client.errors import ConfigError, OrgaError
from orga.client.server.endpoint import Report
from orga.client.server.pollers import WorkerIdentity, local_process, poller_identities
from orga.client.server.versions import Routing, routing
from orga.client.workers.deployment import no_workers_text
from orga.client.workers.early_start import (
    ENDING_MESSAGE,
    POLLING_MESSAGE,
    EarlyWorker,
    WorkerOrder,
    end_early,
    start_process,
    take_or_start,
)

START_TIMEOUT_S = 90.0
STOP_TIMEOUT_S = 15.0
"""Seconds for a stopping worker, which cuts off long calls. Then it is killed."""
FINISH_WAIT_S = 2.0
"""Seconds that a command waits at its end for its worker's calls, which are then calls of other runs."""
DETACH_WAIT_S = 10.0
"""Seconds that an interrupted command waits for its worker's calls. In a container, its end may kill the worker."""
CHECK_S = 0.05
"""Seconds between two questions to the server whether the starting worker polls."""
END_CHECK_S = 0.01
"""Seconds between two checks of an ending worker. They are few, because the command only waits for the end."""

KEEP_CHECK_S = 1.0
"""Seconds between two checks of a running worker."""
HEALTHY_S = 30.0
"""Seconds. A worker that dies sooner has died early."""
MAX_DEATHS = 3
"""Early deaths in a row after which no other worker is started."""

RequireUsable = Callable[[], None]
"""Raises ConfigError with the reason why our own worker could not start."""


class WorkerFailed(OrgaError):
    """The worker did not start."""


class WorkerProcess:
    """A worker process that this command started. When the command ends in any way, the worker finishes its calls."""

    def __init__(self, process: subprocess.Popen[bytes], log: Path | None) -> None:
        self._process = process
        self.log = log

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def output(self) -> IO[bytes] | None:
        """The worker's output, if it was started with a pipe."""
        return self._process.stdout

    def exit_code(self) -> int | None:
        """Return the worker's exit code, or None while it runs."""
        return self._process.poll()

    async def wait_for_end(self) -> int:
        return await asyncio.to_thread(self._process.wait)

    async def wait_until_polling(self, client: Client, task_queue: str) -> None:
        """Wait until the server sees the worker poll. Raise WorkerFailed, with its output, if that fails."""
        deadline = asyncio.get_running_loop().time() + START_TIMEOUT_S
        while not await self._is_polling(client, task_queue):
            if (code := self.exit_code()) is not None:
                raise WorkerFailed(f"the worker ended at its start{_exit_text(code)}: {self._last_log_lines()}")
            if asyncio.get_running_loop().time() > deadline:
                raise WorkerFailed(f"the worker does not poll after {START_TIMEOUT_S:g} s: {self._last_log_lines()}")
            await asyncio.sleep(CHECK_S)

    async def _is_polling(self, client: Client, task_queue: str) -> bool:
        """Ask the server who polls. If the server does not report that, look into the worker's log."""
        identities = await poller_identities(client, task_queue)
        if identities is None:
            return POLLING_MESSAGE in self._log_text()
        return local_process(self.pid) in {WorkerIdentity.parse(identity).process for identity in identities}

    def send(self, number: signal.Signals) -> None:
        if self.exit_code() is None:
            self._process.send_signal(number)

    async def stop(self) -> None:
        self.send(signal.SIGTERM)
        if not await self._has_ended_in(STOP_TIMEOUT_S):
            self.kill()
        self._close()

    async def finish(self, wait_s: float) -> str:
        """Let the worker finish its calls and end. Wait for this at most `wait_s` seconds.

        If the worker does not react within `STOP_TIMEOUT_S`, kill it.

        Returns:
            A text about the worker that goes on without this command. Empty if it has ended.
        """
        self._close()
        if await self._has_ended_in(wait_s):
            return ""
        reaction_deadline = asyncio.get_running_loop().time() + STOP_TIMEOUT_S - wait_s
        while (ending_line := self._ending_line()) is None:
            if await self._has_ended_in(CHECK_S):
                return ""
            if asyncio.get_running_loop().time() > reaction_deadline:
                self.kill()
                return ""
        calls = ending_line.removeprefix(ENDING_MESSAGE)
        return f"worker {self.pid} ends later{calls} (cut off: kill {self.pid})"

    def _ending_line(self) -> str | None:
        """Return the line that the worker logs once it takes no more tasks, or None."""
        lines = [line for line in self._log_text().splitlines() if line.startswith(ENDING_MESSAGE)]
        return lines[-1] if lines else None

    async def _has_ended_in(self, limit_s: float) -> bool:
        deadline = asyncio.get_running_loop().time() + limit_s
        while self.exit_code() is None:
            if asyncio.get_running_loop().time() > deadline:
                return False
            await asyncio.sleep(END_CHECK_S)
        return True

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()
        self._close()

    def _close(self) -> None:
        for stream in (self._process.stdin, self._process.stdout):
            if stream:
                with suppress(BrokenPipeError):  # `close` writes the rest of an order that the worker has not read
                    stream.close()

    def _last_log_lines(self) -> str:
        lines = [stripped for line in self._log_text().splitlines() if (stripped := line.strip())]
        output = " | ".join(line[:300] for line in lines[-3:]) or "it printed nothing"
        return f"{output} (log: {self.log})" if self.log else output

    def _log_text(self) -> str:
        try:
            return self.log.read_text(errors="replace") if self.log else ""
        except FileNotFoundError:
            return ""


def spawn_worker(order: WorkerOrder) -> WorkerProcess:
    """Start a worker in the working directory. Its output goes to a file in orga's home."""
    worker = take_or_start()
    worker.send_order(order)
    return WorkerProcess(worker.process, worker.log)


def spawn_in_foreground(order: WorkerOrder, *, pipe: bool = False) -> WorkerProcess:
    """Start a worker that writes to this command's streams, or into a pipe."""
    worker = EarlyWorker(start_process(subprocess.PIPE if pipe else None))
    worker.send_order(order)
    return WorkerProcess(worker.process, None)


async def start_worker(client: Client, order: WorkerOrder) -> WorkerProcess:
    """Start a worker and wait until it polls. Raise WorkerFailed if it does not start."""
    worker = spawn_worker(order)
    try:
        await worker.wait_until_polling(client, order.task_queue)
    except BaseException:
        worker.kill()
        raise
    return worker


def _exit_text(code: int) -> str:
    return f" (signal {signal.Signals(-code).name})" if code < 0 else f" (exit code {code})"


class WorkerKeeper:
    """Makes sure that some worker polls a task queue."""

    def __init__(self, client: Client, order: WorkerOrder, report: Report, require_usable: RequireUsable) -> None:
        self._client = client
        self._order = order
        self._require_usable = require_usable
        self.report = report
        self._started_at = 0.0
        self._deaths = 0
        self.own: WorkerProcess | None = None

    @property
    def is_keeping(self) -> bool:
        """True until too many workers in a row have died early. A missing worker is started until then."""
        return self._deaths < MAX_DEATHS

    async def ensure(self) -> None:
        """Start a worker unless one polls.

        Raises:
            ConfigError: Our worker could not start with this configuration.
            WorkerFailed: The worker did not start, or it would get no runs because all go to a deployment's version.
        """
        versions = await routing(self._client, self._order.task_queue)
        if versions is None or not versions.is_served:
            await self._start(versions)
        else:
            end_early()

    async def keep(self) -> None:
        """Replace any worker that dies, until this is cancelled or `MAX_DEATHS` die early in a row."""
        while self.is_keeping:
            await asyncio.sleep(KEEP_CHECK_S)
            with suppress(RPCError):  # the server is away: wait until it returns
                await self._replace()

    async def finish(self, wait_s: float) -> None:
        """Let our own worker finish its calls and end. Report if it still runs after `wait_s` seconds."""
        if self.own is not None:
            own, self.own = self.own, None
            if goes_on := await own.finish(wait_s):
                self.report(goes_on)

    async def _replace(self) -> None:
        """Start a worker if our own has died, or nobody polls."""
        if self.own is not None:
            if self.own.exit_code() is None:
                return
            died_early = time.monotonic() - self._started_at < HEALTHY_S
            self._deaths = self._deaths + 1 if died_early else 1
            self.report(f"worker {self.own.pid} died; its log: {self.own.log}")
            await self.finish(FINISH_WAIT_S)
            if not self.is_keeping:
                died = f"{MAX_DEATHS} workers in a row died soon after their start"
                self.report(f"{died}, so no other one is started; see their logs")
                return
        versions = await routing(self._client, self._order.task_queue)
        if versions is not None and versions.is_served:
            return
        try:
            await self._start(versions)
        except (ConfigError, WorkerFailed, OSError) as error:
            self._deaths = MAX_DEATHS
            self.report(str(error))

    async def _start(self, versions: Routing | None) -> None:
        if versions is not None and versions.current is not None:
            raise WorkerFailed(no_workers_text(versions.current, self._order.task_queue))
        self._require_usable()
        self.report("starting a worker…")
        self.own = await start_worker(self._client, self._order)
        self._started_at = time.monotonic()
        self.report(f"worker {self.own.pid} polls task queue {self._order.task_queue!r}")


@asynccontextmanager
async def keep_worker(
    client: Client, order: WorkerOrder, report: Report, require_usable: RequireUsable
) -> AsyncGenerator[WorkerKeeper]:
    """Keep a worker polling until the block ends, then let our own worker end. Raise the errors of `ensure`."""
    keeper = WorkerKeeper(client, order, report, require_usable)
    await keeper.ensure()
    keeping = asyncio.create_task(keeper.keep())
    wait_s = FINISH_WAIT_S
    try:
        yield keeper
    except asyncio.CancelledError:
        wait_s = DETACH_WAIT_S
        raise
    finally:
        keeping.cancel()
        try:
            with suppress(asyncio.CancelledError):
                await keeping
        finally:
            await keeper.finish(wait_s)
