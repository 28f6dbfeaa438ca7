"""The folders of the embedded server, and small tables of state in them."""

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from orga.client.errors import OrgaError
from orga.client.server.drafts import write_atomically
from orga.client.server.endpoint import ServerUnavailable
from orga.client.user_path import user_path


@dataclass(frozen=True)
class Home:
    """The state folder of one user's server."""

    folder: Path

    @property
    def database(self) -> Path:
        """SQLite; every run, its history included."""
        return self.folder / "temporal.db"

    @property
    def record(self) -> Path:
        """What `record.py` reads and writes."""
        return self.folder / "server.json"

    @property
    def ports(self) -> Path:
        """The ports of the last server, as text by `server` and `ui`: the next one takes the same."""
        return self.folder / "ports.json"

    @property
    def trust(self) -> Path:
        """What `orga.client.config.trust.store` reads and writes."""
        return self.folder / "trust.json"

    @property
    def engines(self) -> Path:
        """What `orga.client.workers.engine_memory` reads and writes."""
        return self.folder / "engines.json"

    @property
    def holds(self) -> Path:
        """What `orga.client.workers.held_loops` reads and writes."""
        return self.folder / "holds.json"

    @property
    def typed(self) -> Path:
        """What was typed into `orga chat`, for its line to bring back."""
        return self.folder / "chat_history"

    @property
    def knowledge(self) -> Path:
        """Folder of the stores that no configuration has a place for, one for each folder that runs work in."""
        return self.folder / "knowledge"

    @property
    def log(self) -> Path:
        """Output of supervisor and server; the one before it is `server.log.1`."""
        return self.folder / "server.log"

    @property
    def ahead_lock(self) -> Path:
        """Held by the command that has begun a worker ahead of its order: one at a time does."""
        return self.folder / "ahead.lock"

    @property
    def supervisor_lock(self) -> Path:
        """Held from the decision to start a server until its supervisor has gone."""
        return self.folder / "supervisor.lock"

    @property
    def server_lock(self) -> Path:
        """Held by the server process itself, so it outlives a killed supervisor."""
        return self.folder / "server.lock"

    @property
    def leases_lock(self) -> Path:
        """Shared by the commands that use the server."""
        return self.folder / "leases.lock"


def server_home() -> Home:
    """Return the state folder: `ORGA_HOME`, or `orga` in the user's data folder."""
    if chosen := os.environ.get("ORGA_HOME"):
        return Home(user_path(chosen).absolute())
    data = os.environ.get("XDG_DATA_HOME") or "~/.local/share"
    return Home(user_path(data) / "orga")


def prepare_home() -> Home:
    """Return the state folder, made and tried; it is the user's alone, since histories hold conversations."""
    home = server_home()
    try:
        home.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        home.leases_lock.touch(mode=0o600)
    except OSError as error:
        raise ServerUnavailable(
            f"the server's folder {home.folder} cannot be written ({error.strerror})",
            "make it writable or name another one in ORGA_HOME",
        ) from error
    return home


def cache_folder() -> Path:
    """Return the folder of what can be downloaded or built again."""
    cache = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return user_path(cache) / "orga"


class UnreadableTable(OrgaError):
    """A table that somebody has to look at."""


def read_table(path: Path) -> dict[str, str]:
    """Return the table; an empty one where none is.

    Raises:
        UnreadableTable: It is there and cannot be read.
    """
    try:
        read = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, RecursionError) as error:
        raise UnreadableTable(f"{path}: cannot be read ({error}); mend or remove it") from None
    if not isinstance(read, dict):
        raise UnreadableTable(f"{path}: is no table; mend or remove it")
    return cast("dict[str, str]", read)


def write_table(path: Path, table: dict[str, str]) -> None:
    """Replace the table; who reads it meanwhile sees the old one or the new."""
    prepare_home()
    write_atomically(path, json.dumps(table, indent=1, sort_keys=True).encode())
