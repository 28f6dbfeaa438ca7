"""The parent of the embedded server: `python -m orga.client.server.supervisor`, detached, standard library only.

The supervisor stops the server on SIGTERM, and after a while without leases. If the server dies while it is in use, or
can no longer read its database, the supervisor starts it again on the same ports, so that clients find it. It inherits
its own lock and the locks of the ports from `embedded.py`. They end with this process.
"""

import argparse
import asyncio
import os
import signal
import subprocess
import sys
import time
from asyncio.subprocess import Process
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from orga.activities.adapters.shared_files import acquire_lock
from orga.client.server.endpoint import GIVEN_UP, ServerRecord, read_record, try_lock_leases, write_record
from orga.client.server.home import Home
from orga.client.server.port_numbers import HOST
from orga.client.server.ui import Api, serve_ui

POLL_S = 0.5  # between two looks for leases

HEALTH_S = 3.0
"""Seconds between two looks at the server's health. The server counts as damaged after two bad ones in a row."""

STOP_TIMEOUT_S = 10.0

MAX_DEATHS = 10
"""Deaths of the server in a row, each early after a start, with which the supervisor gives up."""

HEALTHY_S = 30.0
"""Seconds after a start. A later death is the first one in a row."""


@dataclass(frozen=True)
class SupervisorOrders:
    """The settings of the server and of its supervisor."""

    home: Home
    idle_s: float
    """Seconds without a lease after which the server ends."""
    port: int
    ui_port: int
    executable: str
    flags: Sequence[str]
    version: str


class SupervisorFailed(Exception):
    """The supervisor cannot keep the server running. The text is the cause, for the last line of the log."""


class UnsafeServer(SupervisorFailed):
    """The server is so old that web pages could control it."""

    def __init__(self, orders: SupervisorOrders) -> None:
        super().__init__(
            f"{orders.executable} is too old ({orders.version}): its HTTP API would obey any web page. "
            "Install a newer `temporal` command, or name one in ORGA_TEMPORAL_CLI"
        )


async def supervise(orders: SupervisorOrders) -> None:
    """Run the server until it is stopped, is idle, or dies while nobody uses it.

    Raise SupervisorFailed if it dies again and again while it is in use.
    """
    terminated = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, terminated.set)
    deaths = 0
    while death := await _run_until_end(orders, terminated, is_restart=deaths > 0):
        deaths = 1 if death.is_late else deaths + 1
        sys.stderr.write(f"the server died while it was in use: {death.cause}\n")
        if deaths == MAX_DEATHS:
            raise SupervisorFailed(f"it died {deaths} times in a row; the last time {death.cause}")


class _Death(NamedTuple):
    cause: str
    is_late: bool
    """True if the server was healthy for a while before."""


async def _run_until_end(orders: SupervisorOrders, terminated: asyncio.Event, *, is_restart: bool) -> _Death | None:
    """Run the server until its end. Return its death if it was in use, or else None."""
    api, started = Api(), time.monotonic()
    server = await _start_server(orders, api)
    try:
        with serve_ui(orders.ui_port, api, orders.executable):
            await _wait_until_bound(server, orders, api)
            is_damaged = await _wait_for_end(server, orders, api, terminated)
        record = read_record(orders.home.record)  # None after `stop_server`, which removes it
        cause = "it could no longer read its database" if is_damaged else _exit_cause(server.returncode)
        # the command that waits for the first start reports a death before the server is ready
        had_users = record is not None and (record.ready or is_restart)
    finally:
        await _stop_server(server)
        orders.home.record.unlink(missing_ok=True)
    if cause and had_users and _in_use(orders.home):
        return _Death(cause, is_late=time.monotonic() - started >= HEALTHY_S)
    return None


def _exit_cause(code: int | None) -> str:
    """Return how the server ended by itself, or "" if it still runs or ended without an error."""
    if not code:
        return ""
    if code == -signal.SIGKILL:
        return "it was killed, perhaps because the machine had no memory left"
    if code < 0:
        return f"it was ended by {signal.Signals(-code).name}"
    return f"it ended with exit code {code}"


def _in_use(home: Home) -> bool:
    lock = try_lock_leases(home)
    if lock is not None:
        os.close(lock)
    return lock is None


async def _start_server(orders: SupervisorOrders, api: Api) -> Process:
    """Start the server and write its record. The server inherits its lock, and holds it as long as it lives."""
    lock = acquire_lock(orders.home.server_lock)
    try:
        command = (orders.executable, *orders.flags, *api.flags())
        server = await asyncio.create_subprocess_exec(*command, stdin=subprocess.DEVNULL, pass_fds=(lock,))
        started_at = datetime.now(UTC).isoformat(timespec="seconds")
        record = ServerRecord(server.pid, HOST, orders.port, orders.ui_port, orders.version, started_at)
        write_record(orders.home.record, record)
    finally:
        os.close(lock)
    return server


async def _wait_until_bound(server: Process, orders: SupervisorOrders, api: Api) -> None:
    """Wait until the server has bound its ports, and record that it is ready. Give up if it ends or has to end."""
    while server.returncode is None and (record := read_record(orders.home.record)):
        with suppress(OSError):
            _, writer = await asyncio.open_connection(HOST, orders.port)
            writer.close()
            if not await asyncio.to_thread(api.is_closed):
                raise UnsafeServer(orders)
            write_record(orders.home.record, replace(record, ready=True))
            return
        await asyncio.sleep(0.05)


async def _wait_for_end(server: Process, orders: SupervisorOrders, api: Api, terminated: asyncio.Event) -> bool:
    """Wait until the server ends or has to end. Return whether it is damaged."""
    damage = asyncio.create_task(_wait_until_damaged(api))
    waits = {
        damage,
        asyncio.create_task(server.wait()),
        asyncio.create_task(terminated.wait()),
        asyncio.create_task(_wait_until_unused(orders)),
    }
    _, pending = await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    for task in pending:
        task.cancel()
    return damage not in pending


async def _wait_until_damaged(api: Api) -> None:
    bad_looks = 0  # in a row
    while bad_looks < 2:
        await asyncio.sleep(HEALTH_S)
        try:
            bad_looks = bad_looks + 1 if await asyncio.to_thread(api.is_damaged) else 0
        except OSError:
            bad_looks = 0  # the server is busy, or ends


async def _wait_until_unused(orders: SupervisorOrders) -> None:
    """Return after `idle_s` without a lease, and keep the lock: a new lease then waits until this process has ended."""
    used = time.monotonic()
    while True:
        lock = try_lock_leases(orders.home)
        if lock is None:
            used = time.monotonic()
        elif time.monotonic() - used >= orders.idle_s:
            return
        else:
            os.close(lock)
        await asyncio.sleep(min(POLL_S, orders.idle_s / 4))


async def _stop_server(server: Process) -> None:
    """Let the server finish its writes. If it does not end in time, kill it: its SQLite database survives that."""
    with suppress(ProcessLookupError):
        server.terminate()
    try:
        async with asyncio.timeout(STOP_TIMEOUT_S):
            await server.wait()
    except TimeoutError:
        server.kill()
        await server.wait()


def _read_orders() -> SupervisorOrders:
    parser = argparse.ArgumentParser()
    parser.add_argument("--home", type=Path, required=True)
    parser.add_argument("--idle-s", type=float, required=True)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--ui-port", type=int, required=True)
    parser.add_argument("command", nargs="+", help="executable and flags")
    options = parser.parse_args()
    executable, *flags = options.command
    version = subprocess.run([executable, "--version"], capture_output=True, text=True, check=True).stdout.strip()
    address = ["--ip", HOST, "--port", str(options.port), "--headless"]
    flags = ["server", "start-dev", *address, *flags]
    home = Home(options.home)
    return SupervisorOrders(home, options.idle_s, options.port, options.ui_port, executable, flags, version)


def main() -> None:
    if os.fork():  # the launcher waits only for this process and keeps no child
        os._exit(0)
    try:
        asyncio.run(supervise(_read_orders()))
    except (OSError, subprocess.SubprocessError, SupervisorFailed) as error:
        sys.exit(f"{GIVEN_UP}{error}")
