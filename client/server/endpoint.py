"""The address of a Temporal server, and `server.json`, the record of the running embedded server.

The record is no proof that the server lives. Only its lock is.
"""

import json
import os
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields
from pathlib import Path

from orga.activities.adapters.shared_files import acquire_lock, try_lock, write_atomically
from orga.client.server.home import Home, prepare_home

Report = Callable[[str], None]
"""Shows a person a line about progress or a problem."""

GIVEN_UP = "given up: "
"""Begins the last line of the server's log if its supervisor could not keep the server running."""

GIVEN_UP_BYTES = 2_000
"""Bytes at the end of the log that hold that line."""


def given_up_cause(log: Path) -> str | None:
    """Return why the supervisor that wrote this log gave up its server. None if it did not, or still runs."""
    try:
        with log.open("rb") as written:
            size = written.seek(0, os.SEEK_END)
            written.seek(max(size - GIVEN_UP_BYTES, 0))
            end = written.read().decode(errors="replace").rstrip()
    except OSError:
        return None
    last_line = end.rpartition("\n")[2]
    return last_line.removeprefix(GIVEN_UP) if last_line.startswith(GIVEN_UP) else None


@dataclass(frozen=True)
class Endpoint:
    """The address of a server. `ui` is None if its web interface is unknown."""

    address: str
    ui: str | None = None
    namespace: str = "default"
    embedded: bool = False


@dataclass(frozen=True)
class ServerRecord:
    """A server process. `ready` is True after the server has bound its ports."""

    pid: int
    host: str
    port: int
    ui_port: int
    version: str
    started_at: str
    ready: bool = False

    @property
    def endpoint(self) -> Endpoint:
        return Endpoint(f"{self.host}:{self.port}", f"http://{self.host}:{self.ui_port}", "default", embedded=True)


def read_record(path: Path) -> ServerRecord | None:
    """Return the record. Unknown keys are ignored. None if there is no record, or one that this version cannot read."""
    try:
        written = json.loads(path.read_bytes())
        return ServerRecord(**{field.name: written[field.name] for field in fields(ServerRecord)})
    except (OSError, ValueError, TypeError, KeyError, RecursionError):
        return None


def write_record(path: Path, record: ServerRecord) -> None:
    """Replace the whole record. A reader never sees half of it."""
    write_atomically(path, json.dumps(asdict(record), indent=1).encode())


@contextmanager
def lease() -> Generator[None]:
    """Keep the embedded server running. Take the lease before `ensure_server`.

    If an idle server is about to end, this waits a second or two until it has ended. Then `ensure_server` starts the
    next one.
    """
    descriptor = acquire_lock(prepare_home().leases_lock, shared=True)
    try:
        yield
    finally:
        os.close(descriptor)


def try_lock_leases(home: Home) -> int | None:
    """Return the descriptor of a lock that makes new leases wait, or None if there are leases."""
    return try_lock(home.leases_lock)
