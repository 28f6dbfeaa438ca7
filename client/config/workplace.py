"""Which folder and configuration a command or a worker is at home in, and the task queue that goes with them.

All folders share the embedded server, so each has a queue of its own there: no worker takes another folder's runs.
"""

import hashlib
import shlex
import tomllib
from pathlib import Path
from weakref import WeakKeyDictionary

from temporalio.client import Client, WorkflowExecution

from orga.client.config.file import NO_FILE, find_config
from orga.client.config.sections import OrgaConfig
from orga.client.config.worker_order import ROOT_VARIABLE
from orga.client.user_path import user_path
from orga.workflows.types.input import WORKPLACE_MEMO, Workplace, workplace_of
from orga.workflows.types.names import TASK_QUEUE
from orga.workflows.types.sandbox import can_exist

MARK_CHARS = 10
DIGEST_CHARS = 12
_MAX_BYTES = 1_000_000


def workplace(config: OrgaConfig, root: Path | None = None) -> Workplace:
    """Return the place of a process that works here with this configuration; `root` wins over the configuration's."""
    root = (root or config.tools.files.root or Path.cwd()).resolve()
    file = config.file.resolve() if config.file else None
    mark = hashlib.sha256(f"{root}\0{file or ''}".encode(errors="surrogateescape")).hexdigest()[:MARK_CHARS]
    return Workplace(
        folder=_text(Path.cwd()),
        root=_text(root),
        config=_text(file) if file else None,
        digest=_digest(file) if file else "",
        mark=mark,
    )


def own_queue(config: OrgaConfig, place: Workplace, *, embedded: bool) -> str:
    """Return the task queue: of the configuration, and on the embedded server of this place alone."""
    named = config.temporal.task_queue or TASK_QUEUE
    return named if not embedded or named.endswith(f"-{place.mark}") else f"{named}-{place.mark}"


async def home_of(run: WorkflowExecution) -> Workplace | None:
    """Return the place that a run was started for; None where it was started for any."""
    return workplace_of(await run.memo_value(WORKPLACE_MEMO, None))


def worker_command(place: Workplace | None, command: str = "orga worker") -> str:
    """Return how a worker for that place is started from the working folder; the bare command where none is named."""
    if place is None or not f"{place.folder}{place.config}{place.root}".isprintable():
        return command
    there = [] if place.folder == str(Path.cwd()) else ["cd", shlex.quote(place.folder), "&&"]
    root = [] if _is_its_root(place) else [f"{ROOT_VARIABLE}={shlex.quote(place.root)}"]
    config = [] if _is_found(place) else ["--config", shlex.quote(place.config or str(NO_FILE))]
    return " ".join([*there, *root, command, *config])


def _is_found(place: Workplace) -> bool:
    """Return whether the configuration is the one that is found upwards from the folder."""
    found = find_config(None, Path(place.folder), {})
    return (str(found) if found else None) == place.config


def _is_its_root(place: Workplace) -> bool:
    """Return whether folder and configuration as they stand lead to the root."""
    said = _said_root(Path(place.config)) if place.config else None
    root = Path(str(place.config)).parent / user_path(said) if said else Path(place.folder)
    return _text(root.resolve()) == place.root


def _said_root(file: Path) -> str | None:
    """Return the root that a configuration names. Whoever started the run named the file: it may be anything."""
    try:
        if not file.is_file() or file.stat().st_size > _MAX_BYTES:
            return None
        said = tomllib.loads(file.read_text(encoding="utf-8-sig"))["tools"]["files"]["root"]
    except (KeyError, OSError, RecursionError, TypeError, ValueError):
        return None
    return said if isinstance(said, str) and can_exist(said) else None


def _digest(file: Path) -> str:
    try:
        return hashlib.sha256(file.read_bytes()).hexdigest()[:DIGEST_CHARS]
    except OSError:
        return ""


def _text(path: Path) -> str:
    return str(path).encode(errors="surrogateescape").decode(errors="replace")


_HOMES: "WeakKeyDictionary[Client, tuple[str, Workplace | None]]" = WeakKeyDictionary()


def settle(client: Client, queue: str, place: Workplace | None) -> None:
    """Keep in mind which queue a client's runs go to, and for which place."""
    _HOMES[client] = (queue, place)


def settled(client: Client) -> tuple[str, Workplace | None]:
    """Return that queue and place; the usual queue, and no place, for a client that we did not connect."""
    return _HOMES.get(client, (TASK_QUEUE, None))
