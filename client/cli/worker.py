"""`orga worker`: a worker in the foreground."""

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from client.cli.exit_codes import ExitCode
from client.cli.interrupts import completed
from client.cli.options import ConfigFile
from client.cli.output import note
from client.cli.session import session
from client.worker_process import spawn_in_foreground


def worker(
    json_logs: Annotated[bool, typer.Option("--json-logs", help="Log one JSON object a line.")] = False,
    config: ConfigFile = None,
) -> int:
    """Run a worker: it carries out runs, until Ctrl-C or SIGTERM, then it finishes what it does.

    File tools are rooted in the working directory unless orga.toml says otherwise.

    Example: orga worker --json-logs 2> worker.log
    """
    return completed(_worker(config, json_logs=json_logs))


async def _worker(config: Path | None, *, json_logs: bool) -> int:
    async with session(config) as here:
        child = spawn_in_foreground(replace(here.worker_order(), json_logs=json_logs))
        try:
            code = await child.ended()
        except asyncio.CancelledError:
            return 0
        finally:
            await child.stop()
    note(f"orga: the worker ended (exit code {code})")
    return ExitCode.FAILED
