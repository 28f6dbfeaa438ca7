"""Which folder and configuration a command or a worker is at home in, and the task queue that goes with them.

All folders share the embedded server, so each has a queue of its own there: no worker takes another folder's runs.
"""

import hashlib
import shlex
from pathlib import Path
from weakref import WeakKeyDictionary

from temporalio.client import Client, WorkflowExecution

from client.config import OrgaConfig
from client.config_file import FILE_NAME
from workflows.types.names import TASK_QUEUE
from workflows.types.workplace import WORKPLACE_MEMO, Workplace, workplace_of

MARK_CHARS = 10
DIGEST_CHARS = 12


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
    if (
        place is None
        or not f"{place.folder}{place.config}".isprintable()
        or (place.folder == str(Path.cwd()) and _is_found(place))
    ):
        return command
    words = [command, *([] if _is_found(place) else ["--config", shlex.quote(str(place.config))])]
    return f"cd {shlex.quote(place.folder)} && {' '.join(words)}"


def _is_found(place: Workplace) -> bool:
    """Return whether the configuration is the one that is found upwards from the folder."""
    folder = Path(place.folder)
    near = next((each for each in (folder, *folder.parents) if (each / FILE_NAME).is_file()), None)
    return (str(near / FILE_NAME) if near else None) == place.config


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
