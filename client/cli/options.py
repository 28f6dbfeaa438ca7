"""Arguments and options that several commands share."""

import re
import sys
from datetime import datetime, timedelta
from getpass import getuser
from pathlib import Path
from typing import Annotated

import typer

from orga.client.cli.exit_codes import UsageError
from orga.client.errors import RunNotFound
from orga.client.runs.ids import MAX_ID_BYTES
from orga.workflows.types.text import escaped_line


def _validate_run_id(run_id: str) -> str:
    """Refuse what the server would not even look for."""
    if not run_id or len(run_id.encode(errors="replace")) > MAX_ID_BYTES:
        raise RunNotFound(run_id if len(run_id) <= MAX_ID_BYTES else f"{run_id[:50]}…")
    return run_id


RunId = Annotated[
    str,
    typer.Argument(
        metavar="ID",
        help="The run's id, or a beginning of it that no other run's has.",
        show_default=False,
        callback=_validate_run_id,
    ),
]
"""As it was said: `session.of_run` tells which run that is."""

Json = Annotated[bool, typer.Option("--json", "-j", help="The result alone on stdout, as JSON; all else on stderr.")]

ConfigFile = Annotated[
    Path | None,
    typer.Option(
        "--config",
        "-c",
        metavar="FILE",
        help="Use this orga.toml, not ORGA_CONFIG or the first one upwards from here.",
        show_default=False,
    ),
]

Quiet = Annotated[
    bool,
    typer.Option(
        "--quiet", "-q", help="The answer alone; on stderr only what waits for a person, and what went wrong."
    ),
]

LastIteration = Annotated[
    int,
    typer.Option(
        "--to-iteration",
        "-i",
        min=0,
        metavar="N",
        help="The last iteration of its past that is kept; 0 keeps none.",
        show_default=False,
    ),
]

NoWorker = Annotated[
    bool, typer.Option("--no-worker", help="Start no worker here, even if none polls: the run waits for one.")
]

AgentName = Annotated[str | None, typer.Option("--agent", "-a", help="An agent of orga.toml; the default one without.")]

Model = Annotated[
    str | None, typer.Option("--model", "-m", help="provider:model or tier:NAME, in place of the agent's own.")
]

Instructions = Annotated[str | None, typer.Option(help="In place of the agent's own.")]

Tools = Annotated[
    list[str] | None,
    typer.Option(
        "--tools", "-t", help="Only these tools, of the agent and of its delegates; repeat it, or part names by commas."
    ),
]

Settings = Annotated[
    list[str] | None,
    typer.Option("--set", "-s", metavar="KEY=VALUE", help="A setting of the loop, as max_total_tokens=50000."),
]

TrustedFacts = Annotated[
    list[str] | None,
    typer.Option(metavar="KEY=VALUE", help="A fact that policies may rely on; no model can write it."),
]


def login_name() -> str:
    """Return the user's login name; a container may have none."""
    try:
        return getuser()
    except (KeyError, OSError):
        return ""


_UNIT_SECONDS = {"w": 604_800, "d": 86_400, "h": 3_600, "m": 60, "s": 1}
_DURATION = re.compile(r"(?:[0-9]{1,9}[wdhms])+")
_DURATION_PART = re.compile(r"(\d+)([wdhms])")


def parse_duration(text: str, option: str) -> timedelta:
    """Return what `90s`, `5m`, `1h30m`, `2d` or `1w` stands for.

    Raises:
        UsageError: Something else.
    """
    if not _DURATION.fullmatch(text):
        raise UsageError(f"{option} {escaped_line(text)!r}: write a length of time as 90s, 5m, 1h30m, 2d or 1w")
    return timedelta(seconds=sum(int(number) * _UNIT_SECONDS[unit] for number, unit in _DURATION_PART.findall(text)))


def parse_time(text: str, option: str) -> datetime:
    """Return a time, without a zone where none is written.

    Raises:
        UsageError: It is none.
    """
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        raise UsageError(f"{option} {escaped_line(text)!r}: write a time as 2026-12-31T18:00, or with +01:00") from None


def task_text(task: str) -> str:
    """Return the task; `-` stands for what comes on standard input."""
    if task != "-":
        return task
    if sys.stdin.isatty():
        sys.stderr.write("reading the task from standard input; end it with Ctrl-D\n")
    try:
        return sys.stdin.buffer.read().decode("utf-8")
    except UnicodeDecodeError as error:
        raise UsageError(f"the task on standard input is not UTF-8 text (byte {error.start})") from None
