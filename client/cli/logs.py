"""`orga logs`: what workers that commands brought along, and the embedded server, have written."""

import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from orga.client.cli.exit_codes import UsageError
from orga.client.cli.output import json_result, note, result
from orga.client.server.home import server_home

LOOK_S = 0.3
TAIL_BYTES = 4_000_000
"""Of a file that are looked at for its last lines."""


def logs(
    which: Annotated[
        str | None,
        typer.Argument(metavar="WHICH", help="server, worker (the newest), or the number of a worker; worker without."),
    ] = None,
    *,
    lines: Annotated[int, typer.Option("--lines", "-n", min=1, help="How many, of the end.")] = 50,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on until Ctrl-C.")] = False,
    list_: Annotated[bool, typer.Option("--list", help="Show which logs there are, newest first.")] = False,
    json: Annotated[bool, typer.Option("--json", "-j", help="With --list: the logs as JSON on stdout.")] = False,
) -> int:
    """Show the log of a worker that a command brought along, or of the embedded server.

    `orga worker` and `orga dev` write theirs to their own terminal. No server is needed.

    Example: orga logs --follow

    Example: orga logs server -n 200
    """
    if list_:
        return _listed(as_json=json)
    if json:
        raise UsageError("--json goes with --list")
    path = _chosen(which or "worker")
    note(str(path))
    found, read = _tail(path, lines)
    for line in found:
        result(line)
    if follow:
        for line in _news(path, read):
            result(line)
    return 0


def _all() -> dict[str, Path]:
    """Return the logs by the name that chooses them, newest first."""
    home = server_home()
    workers = sorted(home.folder.glob("worker-*.log"), key=_changed, reverse=True)
    found = {path.stem.removeprefix("worker-"): path for path in workers}
    return found | ({"server": home.log} if home.log.is_file() else {})


def _changed(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:  # tidied up meanwhile
        return 0.0


def _chosen(which: str) -> Path:
    found = _all()
    newest = next((path for name, path in found.items() if name != "server"), None)
    path = newest if which == "worker" else found.get(which)
    if path is None:
        known = ", ".join(found) or "none yet: a command that brings a worker, as orga run does, makes one"
        raise UsageError(f"there is no log {which!r}; there are: {known}")
    return path


def _listed(*, as_json: bool) -> int:
    found = _all()
    if as_json:
        json_result([{"name": name, "path": str(path)} for name, path in found.items()])
    for name, path in () if as_json else found.items():
        at = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(_changed(path)))
        result(f"{name:<10}  {at}  {path}")
    return 0


@dataclass(frozen=True)
class _Read:
    """How far a log was read, and which file it was: a server that starts anew has another."""

    inode: int
    at: int


def _tail(path: Path, count: int) -> tuple[list[str], _Read]:
    with path.open("rb") as log:
        end = log.seek(0, os.SEEK_END)
        log.seek(max(end - TAIL_BYTES, 0))
        lines = log.read().decode(errors="replace").splitlines()[-count:]
        return lines, _Read(os.fstat(log.fileno()).st_ino, log.tell())


def _news(path: Path, read: _Read) -> Iterator[str]:
    """Yield the lines that come, for ever."""
    left = ""
    while True:
        with path.open("rb") as log:
            now = os.fstat(log.fileno())
            if now.st_ino != read.inode or now.st_size < read.at:
                read, left = _Read(now.st_ino, 0), ""
            log.seek(read.at)
            found = log.read()
        read = _Read(read.inode, read.at + len(found))
        *whole, left = (left + found.decode(errors="replace")).split("\n")
        yield from whole
        time.sleep(LOOK_S)
