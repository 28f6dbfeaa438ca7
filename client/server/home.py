"""The state folder of a user: the embedded server's files, and state that commands and workers share."""

import json
import os
from pathlib import Path
from typing import cast

from orga.activities.adapters.shared_files import write_atomically
from orga.client.errors import OrgaError, ServerUnavailable


def user_path(written: str | Path) -> Path:
    """Return the path with `~` replaced. If that user has no home, return it unchanged, so that no file is found."""
    try:
        return Path(written).expanduser()
    except RuntimeError:
        return Path(written)


class Home:
    """The files and folders in the state folder of one user."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.database = folder / "temporal.db"
        """SQLite database of all runs and their histories."""
        self.record = folder / "server.json"
        """The record of the running server (`endpoint.py`)."""
        self.ports = folder / "ports.json"
        """The ports of the last server, as texts under `server` and `ui`. The next server takes the same ports."""
        self.trust = folder / "trust.json"
        """The trusted configurations (`orga.client.config.trust.check`)."""
        self.engines = folder / "engines.json"
        """The last engine of each configuration (`orga.client.workers.engine_memory`)."""
        self.lessons = folder / "lessons.json"
        """Lessons from refusals of models, for all workers. It may be deleted."""
        self.logins = folder / "logins"
        """Folder of people's logins at MCP servers (`orga.activities.adapters.mcp.login`)."""
        self.blocked_loops = folder / "holds.json"
        """Blocked event loops of workers (`orga.client.workers.registrations`)."""
        self.ending_workers = folder / "ending"
        """Folder of locks, named by process number. A worker holds its lock while it only finishes its calls."""
        self.chat_input = folder / "chat_history"
        """The input history of `orga chat`."""
        self.console_token = folder / "console-token"
        """The token of the address that `orga console` prints."""
        self.console_page = folder / "console.html"
        """A page that leads to that address, for `orga console --open`."""
        self.knowledge = folder / "knowledge"
        """Folder of the knowledge stores without a configured path, one for each folder that runs work in."""
        self.blobs = folder / "blobs"
        """Folder of pictures and documents, by digest (`orga.activities.adapters.blob_folder`). Nothing is removed."""
        self.edits = folder / "edits.db"
        """SQLite database of the edits that `edit_file` has made (`orga.activities.adapters.tools.file_changes`)."""
        self.timelines = folder / "timelines"
        """Folder of segments that were read for timelines (`orga.client.journal.segments`). It may be deleted."""
        self.log = folder / "server.log"
        """Output of supervisor and server."""
        self.previous_log = folder / "server.log.1"
        """Output of the supervisor and server before this one."""
        self.early_worker_lock = folder / "ahead.lock"
        """Held by the command that starts a worker before it knows the order. Only one command at a time does that."""
        self.supervisor_lock = folder / "supervisor.lock"
        """Held from the decision to start a server until its supervisor has gone."""
        self.server_lock = folder / "server.lock"
        """Held by the server process itself, so it outlives a killed supervisor."""
        self.leases_lock = folder / "leases.lock"
        """Shared by the commands that use the server."""


def server_home() -> Home:
    """Return the state folder: `ORGA_HOME`, or `orga` in the user's data folder."""
    if chosen := os.environ.get("ORGA_HOME"):
        return Home(user_path(chosen).absolute())
    data = os.environ.get("XDG_DATA_HOME") or "~/.local/share"
    return Home(user_path(data) / "orga")


def prepare_home() -> Home:
    """Create the state folder and return it. It is private to the user, because histories contain conversations."""
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
    """Return the table. If there is no file, it is empty. Raise UnreadableTable if it cannot be read."""
    try:
        table = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, RecursionError) as error:
        raise UnreadableTable(f"{path}: cannot be read ({error}); correct or remove it") from None
    if not isinstance(table, dict):
        raise UnreadableTable(f"{path}: is no table; correct or remove it")
    return cast("dict[str, str]", table)


def write_table(path: Path, table: dict[str, str]) -> None:
    """Replace the table. A concurrent reader sees the old or the new one."""
    prepare_home()
    write_atomically(path, json.dumps(table, indent=1, sort_keys=True).encode())
