"""`orga dev`: server and worker together, in one terminal."""

import asyncio
import os
import time
from collections.abc import AsyncGenerator
from contextlib import suppress
from pathlib import Path
from typing import IO

from orga.client.cli.exit_codes import ExitCode
from orga.client.cli.interrupts import completed
from orga.client.cli.options import ConfigFile
from orga.client.cli.output import note
from orga.client.cli.session import Session, session
from orga.client.server.embedded import stop
from orga.client.server.home import server_home
from orga.client.server.leases import unleased
from orga.client.workers.keeping import HEALTHY_S, MAX_DEATHS
from orga.client.workers.process import WorkerProcess, spawn_in_foreground

LOG_S = 0.5


def dev(config: ConfigFile = None) -> int:
    """Run server and worker until Ctrl-C, their logs side by side; a worker that dies is started again.

    Example: orga dev
    """
    return completed(_dev(config))


async def _dev(config: Path | None) -> int:
    embedded = False
    try:
        async with session(config) as here:
            embedded = here.connection.endpoint.embedded
            return await _both(here)
    except asyncio.CancelledError:
        note("stopping…")
        return 0
    finally:
        if embedded:
            _stop_unused_server()


async def _both(here: Session) -> int:
    endpoint = here.connection.endpoint
    note(f"[server] {endpoint.address}" + (f", UI {endpoint.ui}" if endpoint.ui else ""))
    log = asyncio.create_task(_server_log()) if endpoint.embedded else None
    try:
        return await _workers(here)
    finally:
        if log:
            log.cancel()


async def _workers(here: Session) -> int:
    """Run one worker after the other until too many in a row die young."""
    deaths = 0
    while deaths < MAX_DEATHS:
        here.require_usable()
        started = time.monotonic()
        child = spawn_in_foreground(here.worker_order(for_folder=True), pipe=True)
        try:
            note(f"[worker] process {child.pid} on task queue {here.task_queue!r}")
            await _relay(child)
        finally:
            await child.stop()
        deaths = deaths + 1 if time.monotonic() - started < HEALTHY_S else 1
        note(f"[worker] process {child.pid} died (exit code {child.exit_code()})")
    note(f"orga: {MAX_DEATHS} workers died one after the other; their last lines say why")
    return ExitCode.FAILED


async def _relay(child: WorkerProcess) -> None:
    """Write what the worker writes, until it ends."""
    if child.output is not None:
        async for line in _lines(child.output):
            note(f"[worker] {line}")


async def _lines(pipe: IO[bytes]) -> AsyncGenerator[str]:
    reader = asyncio.StreamReader(limit=2**20)
    loop = asyncio.get_running_loop()
    transport, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), pipe)
    try:
        while line := await reader.readline():
            yield line.decode(errors="replace").rstrip()
    finally:
        transport.close()


async def _server_log() -> None:
    """Write what the server logs from now on."""
    with suppress(OSError), server_home().log.open(errors="replace") as log:
        log.seek(0, os.SEEK_END)
        while True:
            for line in log:
                note(f"[server] {line.rstrip()}")
            await asyncio.sleep(LOG_S)


def _stop_unused_server() -> None:
    lock = unleased(server_home())
    if lock is not None:
        stop()
        os.close(lock)
