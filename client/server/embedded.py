"""The embedded server: one for each user of a machine, shared by all commands, gone when none uses it."""

import asyncio
import time

from temporalio.client import Client

from orga.client.server.endpoint import Endpoint, Report, ServerUnavailable
from orga.client.server.home import Home, prepared_home, server_home
from orga.client.server.launch import launched
from orga.client.server.locate import locate
from orga.client.server.locks import is_held
from orga.client.server.readiness import why_silent
from orga.client.server.record import ServerRecord, read_record
from orga.client.server.search_attributes import register
from orga.client.server.stopping import stop_server

IDLE_S = 300.0
START_TIMEOUT_S = 60.0


async def ensure_server(report: Report, *, idle_s: float = IDLE_S) -> Endpoint:
    """Return the running server, or start one. Hold a `lease` around the use of it.

    Args:
        report: Is told what takes long.
        idle_s: How long a server that is started here stays without a lease.

    Raises:
        ServerUnavailable: No executable, no folder to write to, no free port, or the server died.
    """
    home = prepared_home()
    while True:
        ours = False
        if not is_held(home.supervisor_lock):
            executable = await locate(report)
            report("starting the Temporal server…")
            ours = await asyncio.to_thread(launched, home, executable, idle_s)
        if record := await _answering(home):
            break
        if ours:
            raise _died(home)
    if ours:
        await _complete(record.endpoint)
    return record.endpoint


def running() -> Endpoint | None:
    """Return the embedded server if it is up; start nothing."""
    home = server_home()
    record = read_record(home.record)
    return record.endpoint if record and record.ready and is_held(home.server_lock) else None


def stop() -> bool:
    """Stop the embedded server, used or not, and return whether there was one. Its runs stay in the database."""
    home = server_home()
    stopped = stop_server(home) is not None
    deadline = time.monotonic() + 15
    while is_held(home.supervisor_lock) and time.monotonic() < deadline:
        time.sleep(0.05)
    return stopped


async def _answering(home: Home) -> ServerRecord | None:
    """Wait for the server while its supervisor lives; None when that ended first."""
    deadline = time.monotonic() + START_TIMEOUT_S
    while is_held(home.supervisor_lock):
        record = read_record(home.record)
        if record and record.ready and await why_silent(record.endpoint.address) is None:
            return record
        if time.monotonic() > deadline:
            raise ServerUnavailable(
                f"the Temporal server did not answer within {START_TIMEOUT_S:g} s",
                f"see {home.log}, or stop it with `orga server --stop`",
            )
        await asyncio.sleep(0.05)
    return None


async def _complete(endpoint: Endpoint) -> None:
    """Register what an older database lacks: the server takes the attributes of its flags into a new one only."""
    await register(await Client.connect(endpoint.address, namespace=endpoint.namespace))


def _died(home: Home) -> ServerUnavailable:
    lines = home.log.read_text(errors="replace").splitlines() if home.log.exists() else []
    last = " | ".join([line.strip()[:300] for line in lines if line.strip()][-3:])
    return ServerUnavailable(f"the Temporal server died at its start ({last or 'it said nothing'})", f"see {home.log}")
