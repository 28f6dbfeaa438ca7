"""`orga worker`: a worker in the foreground."""

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from orga.client.cli.exit_codes import ExitCode, UsageError
from orga.client.cli.interrupts import completed
from orga.client.cli.options import ConfigFile
from orga.client.cli.output import hush, note
from orga.client.cli.session import session
from orga.client.workers.process import spawn_in_foreground
from orga.client.workers.routing import deployment_name


def _named(deployment: str | None) -> str | None:
    """Refuse what cannot be a deployment."""
    try:
        return None if deployment is None else deployment_name(deployment)
    except ValueError as error:
        raise UsageError(str(error)) from None


def worker(
    deployment: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Be a version of this deployment: its runs stay with it.", callback=_named),
    ] = None,
    json_logs: Annotated[
        bool, typer.Option("--json-logs", help="Write everything to stderr as JSON, one object a line.")
    ] = False,
    config: ConfigFile = None,
) -> int:
    """Run a worker: it carries out runs, until Ctrl-C or SIGTERM, then it finishes what it does.

    File tools are rooted in the working directory unless orga.toml says otherwise. With --deployment no run is carried
    out before the version is made current; doctor says how. Runs that it began stay on it until they continue as new.

    Example: orga worker --json-logs 2> worker.log

    Example: orga worker --deployment shop
    """
    if json_logs:
        from orga.client.telemetry.logs import configure_logs  # a worker in a terminal is told plainly

        configure_logs(json=True)
        hush(quiet=False, to_log=True)
    return completed(_worker(config, deployment, json_logs=json_logs))


async def _worker(config: Path | None, deployment: str | None, *, json_logs: bool) -> int:
    async with session(config) as here:
        here.require_usable()
        order = here.worker_order(for_folder=True)
        child = spawn_in_foreground(replace(order, json_logs=json_logs, deployment=deployment))
        try:
            code = await child.ended()
        except asyncio.CancelledError:
            return 0
        finally:
            await child.stop()
    note(f"orga: the worker ended (exit code {code})")
    return ExitCode.FAILED
