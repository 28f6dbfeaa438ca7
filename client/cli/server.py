"""`orga server`: the embedded Temporal server, in the foreground; or its state; or its end."""

import asyncio
from dataclasses import asdict
from typing import Annotated

import typer

from orga.client.cli.exit_codes import ExitCode, UsageError
from orga.client.cli.interrupts import completed
from orga.client.cli.options import Json
from orga.client.cli.output import json_result, note, result
from orga.client.server.embedded import ensure_server, running, stop
from orga.client.server.endpoint import Endpoint
from orga.client.server.leases import lease

WATCH_S = 2.0
MISSES = 3


def server(
    stop_it: Annotated[
        bool, typer.Option("--stop", help="Stop it; runs stay in its database and go on later.")
    ] = False,
    status: Annotated[bool, typer.Option("--status", help="Say whether it runs and where; exit 7 if not.")] = False,
    json: Json = False,
) -> int:
    """Keep the embedded Temporal server up until Ctrl-C, and show its address and its UI.

    Other commands share it and start it when they need it; it stops a while after the last one ended.

    Example: orga server --status
    """
    if stop_it and status:
        raise UsageError("--stop and --status cannot be combined")
    if stop_it:
        return _stopped(as_json=json)
    return _status(as_json=json) if status else completed(_foreground(as_json=json))


def _stopped(*, as_json: bool) -> int:
    was_up = stop()
    if as_json:
        json_result({"stopped": was_up})
    else:
        result("the embedded server is stopped" if was_up else "no embedded server was running")
    return 0


def _status(*, as_json: bool) -> int:
    endpoint = running()
    if as_json:
        json_result(asdict(endpoint) if endpoint else None)
    elif endpoint:
        result(*_shown(endpoint))
    else:
        note("no embedded server runs; it starts with the first command that needs it, or with: orga server")
    return 0 if endpoint else ExitCode.NO_SERVER


async def _foreground(*, as_json: bool) -> int:
    with lease():
        endpoint = await ensure_server(note)
        if as_json:
            json_result(asdict(endpoint))
        else:
            result(*_shown(endpoint))
        note("Ctrl-C ends this command; the server stops when no other one uses it (at once: orga server --stop)")
        try:
            await _gone()
        except asyncio.CancelledError:
            return 0
    note("the server was stopped")
    return ExitCode.NO_SERVER


async def _gone() -> None:
    """Wait until the server is down for longer than its supervisor takes to start it anew."""
    misses = 0
    while misses < MISSES:
        await asyncio.sleep(WATCH_S)
        misses = 0 if running() else misses + 1


def _shown(endpoint: Endpoint) -> list[str]:
    return [f"address    {endpoint.address}", f"namespace  {endpoint.namespace}", f"ui         {endpoint.ui}"]
