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
    """Refuse ids that no run can have."""
    if not run_id or len(run_id.encode(errors="replace")) > MAX_ID_BYTES:
        raise RunNotFound(run_id if len(run_id) <= MAX_ID_BYTES else f"{run_id[:50]}…")
    return run_id


RunId = Annotated[
    str,
    typer.Argument(
        metavar="ID",
        help="The run's id, or its first characters if no other run's id begins with them.",
        show_default=False,
        callback=_validate_run_id,
    ),
]
"""The id as typed. `connection.run_context` finds the run that it names."""

Json = Annotated[
    bool, typer.Option("--json", "-j", help="Write only the result to stdout, as JSON. All else goes to stderr.")
]

ConfigFile = Annotated[
    Path | None,
    typer.Option(
        "--config",
        "-c",
        metavar="FILE",
        help="Use this orga.toml. Default: ORGA_CONFIG, or the nearest orga.toml in this folder or above it.",
        show_default=False,
    ),
]

Quiet = Annotated[
    bool,
    typer.Option("--quiet", "-q", help="Show only the answer; on stderr only errors and questions to people."),
]

LastIteration = Annotated[
    int,
    typer.Option(
        "--to-iteration",
        "-i",
        min=0,
        metavar="N",
        help="The last iteration to keep. 0 keeps none.",
        show_default=False,
    ),
]

NoWorker = Annotated[
    bool, typer.Option("--no-worker", help="Start no worker here. If none is running, the run waits for one.")
]

Again = Annotated[bool, typer.Option("--again", help="With --id: start even if a run with this id has ended.")]

Detach = Annotated[bool, typer.Option("--detach", "-d", help="Start the run, print its id, and exit.")]

AgentName = Annotated[
    str | None, typer.Option("--agent", "-a", help="An agent of orga.toml. Default: the default agent.")
]

Model = Annotated[
    str | None, typer.Option("--model", "-m", help="provider:model or tier:NAME. Default: the agent's own.")
]

Instructions = Annotated[str | None, typer.Option(help="Instructions that replace the agent's own.")]

Tools = Annotated[
    list[str] | None,
    typer.Option(
        "--tools",
        "-t",
        help="Allow only these tools, to the agent and its delegates. Repeat it, or separate names by commas.",
    ),
]

Settings = Annotated[
    list[str] | None,
    typer.Option("--set", "-s", metavar="KEY=VALUE", help="A setting of the loop, such as max_total_tokens=50000."),
]

Attach = Annotated[
    list[Path] | None,
    typer.Option("--attach", metavar="FILE", help="A picture or a PDF for the model. Repeat it for more files."),
]

TrustedFacts = Annotated[
    list[str] | None,
    typer.Option(metavar="KEY=VALUE", help="A fact that policies may rely on. No model can write it."),
]

DecidedBy = Annotated[
    str | None, typer.Option("--by", metavar="NAME", help="Who decides. Default: your login name.", show_default=False)
]

Reason = Annotated[str, typer.Option(help="The reason, for the journal.")]


def login_name() -> str:
    """Return the user's login name, or "" if there is none, as in some containers."""
    try:
        return getuser()
    except (KeyError, OSError):
        return ""


_UNIT_SECONDS = {"w": 604_800, "d": 86_400, "h": 3_600, "m": 60, "s": 1}
_DURATION = re.compile(r"(?:[0-9]{1,9}[wdhms])+")
_DURATION_PART = re.compile(r"(\d+)([wdhms])")
_MAX_DURATION_S = 36_500 * 86_400
"""About 100 years. Later times would not fit into a date."""


def parse_duration(text: str, option: str) -> timedelta:
    """Parse a duration such as `90s`, `5m`, `1h30m`, `2d` or `1w`. Raise UsageError for text of another form."""
    if not _DURATION.fullmatch(text):
        raise UsageError(f"{option} {escaped_line(text)!r}: not a duration. Write it as 90s, 5m, 1h30m, 2d or 1w")
    seconds = sum(int(number) * _UNIT_SECONDS[unit] for number, unit in _DURATION_PART.findall(text))
    if seconds > _MAX_DURATION_S:
        raise UsageError(f"{option} {text!r}: too long. Give at most {_MAX_DURATION_S // 86_400}d")
    return timedelta(seconds=seconds)


def parse_time(text: str, option: str) -> datetime:
    """Parse a time in ISO format. It has no zone if the text has none. Raise UsageError for text of another form."""
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        example = "2026-12-31T18:00 or 2026-12-31T18:00+01:00"
        raise UsageError(f"{option} {escaped_line(text)!r}: not a time. Write it as {example}") from None


def text_or_stdin(text: str) -> str:
    """Return the text of an argument; `-` reads it from standard input."""
    if text != "-":
        return text
    if sys.stdin.isatty():
        sys.stderr.write("reading the text from standard input; end it with Ctrl-D\n")
    try:
        return sys.stdin.buffer.read().decode("utf-8")
    except UnicodeDecodeError as error:
        raise UsageError(f"standard input: not UTF-8 text (byte {error.start})") from None


def text_or_file(option: str, value: str) -> str:
    """Return the value of an option. If it is `@FILE`, return the file's text."""
    if not value.startswith("@"):
        return value
    try:
        return Path(value[1:]).read_bytes().decode("utf-8")
    except OSError as error:
        raise UsageError(f"{option} {value}: the file cannot be read ({error.strerror})") from None
    except UnicodeDecodeError as error:
        raise UsageError(f"{option} {value}: the file is not UTF-8 text (byte {error.start})") from None
