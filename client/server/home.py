"""The folders of the embedded server, and small tables of state in them."""

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from orga.activities.adapters.shared_files import write_atomically
from orga.client.errors import OrgaError
from orga.client.server.endpoint import ServerUnavailable
from orga.client.user_path import user_path


@dataclass(frozen=True)
class Home:
    """The state folder of one user's server."""

    folder: Path

    @property
    def database(self) -> Path:
        """SQLite database of all runs and their histories."""
        return self.folder / "temporal.db"

    @property
    def record(self) -> Path:
        """The record of the running server (`record.py`)."""
        return self.folder / "server.json"

    @property
    def ports(self) -> Path:
        """The ports of the last server, as text under `server` and `ui`. The next server takes the same."""
        return self.folder / "ports.json"

    @property
    def trust(self) -> Path:
        """The trusted configurations (`orga.client.config.trust.check`)."""
        return self.folder / "trust.json"

    @property
    def engines(self) -> Path:
        """The last engine of each configuration (`orga.client.workers.engine_memory`)."""
        return self.folder / "engines.json"

    @property
    def lessons(self) -> Path:
        """Lessons from refusals of models, for all workers. It may be deleted."""
        return self.folder / "lessons.json"

    @property
    def logins(self) -> Path:
        """Folder of people's logins at MCP servers (`orga.activities.adapters.mcp.login`)."""
        return self.folder / "logins"

    @property
    def blocked_loops(self) -> Path:
        """Blocked event loops of workers (`orga.client.workers.registrations`)."""
        return self.folder / "holds.json"

    @property
    def chat_input(self) -> Path:
        """The input history of `orga chat`."""
        return self.folder / "chat_history"

    @property
    def console_token(self) -> Path:
        """The token of the address that `orga console` prints."""
        return self.folder / "console-token"

    @property
    def console_page(self) -> Path:
        """A page that leads to that address, for `orga console --open`."""
        return self.folder / "console.html"

    @property
    def knowledge(self) -> Path:
        """Folder of the knowledge stores without a configured path, one for each folder that runs work in."""
        return self.folder / "knowledge"

    @property
    def blobs(self) -> Path:
        """Folder of pictures and documents, by digest (`orga.activities.adapters.blob_folder`). Nothing is removed."""
        return self.folder / "blobs"

    @property
    def edits(self) -> Path:
        """SQLite database of the edits that `edit_file` has made (`orga.activities.adapters.tools.file_changes`)."""
        return self.folder / "edits.db"

    @property
    def timelines(self) -> Path:
        """Folder of segments that were read for timelines (`orga.client.journal.segments`). It may be deleted."""
        return self.folder / "timelines"

    @property
    def log(self) -> Path:
        """Output of supervisor and server. The previous one is `server.log.1`."""
        return self.folder / "server.log"

    @property
    def early_worker_lock(self) -> Path:
        """Held by the command that starts a worker before it knows the order. Only one command at a time does that."""
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
    """Return the state folder, created and writable. It is private to the user: histories contain conversations."""
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
    """Return the folder for things that can be downloaded or built again."""
    cache = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return user_path(cache) / "orga"


class UnreadableTable(OrgaError):
    """A table is damaged, and a person has to look at it."""


def read_table(path: Path) -> dict[str, str]:
    """Return the table, empty without a file. Raise UnreadableTable if it cannot be read."""
    try:
        read = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, RecursionError) as error:
        raise UnreadableTable(f"{path}: cannot be read ({error}); correct or remove it") from None
    if not isinstance(read, dict):
        raise UnreadableTable(f"{path}: is no table; correct or remove it")
    return cast("dict[str, str]", read)


def write_table(path: Path, table: dict[str, str]) -> None:
    """Replace the table. A concurrent reader sees the old or the new one."""
    prepare_home()
    write_atomically(path, json.dumps(table, indent=1, sort_keys=True).encode())
