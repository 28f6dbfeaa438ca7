"""The folder and configuration that a command or worker belongs to, and the task queue that follows from them.

All folders share the embedded server. Each folder has its own queue there, so no worker takes another folder's runs.
The queue does not depend on `orga.toml`, which may appear, change or move. A shell whose environment names models gets
a queue of its own, because a worker of another shell would send its prompts to other models.
"""

import hashlib
import json
import os
import re
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

from temporalio.client import Client, WorkflowExecution

from orga.activities.adapters.toml_text import read_toml
from orga.client.config.file import find_config
from orga.client.config.sections import OrgaConfig
from orga.client.server.home import user_path
from orga.workflows.types.input import (
    POLICY_MEMO,
    WORKPLACE_MEMO,
    Workplace,
    policy_in_memo,
    run_memo,
    workplace_of,
)
from orga.workflows.types.names import TASK_QUEUE
from orga.workflows.types.tool_calls.sandbox import can_exist

ROOT_VARIABLE = "ORGA_TOOLS__FILES__ROOT"

MARK_CHARS = 10
MODELS_CHARS = 8
MAX_SHOWN = 5
"""Variables in a displayed command."""
_VARIABLE = re.compile(r"[A-Z][A-Z0-9_]{0,80}")
DIGEST_CHARS = 12
_MAX_BYTES = 1_000_000


def workplace(config: OrgaConfig, root: Path | None = None) -> Workplace:
    """Return the workplace of a process here with this configuration. `root` overrides the configuration's root."""
    root = (root or config.tools.files.root or Path.cwd()).resolve()
    file = config.file.resolve() if config.file else None
    models, variables = _model_settings()
    place = Workplace(
        folder=_file_text(Path.cwd()),
        root=_file_text(root),
        config=_file_text(file) if file else None,
        digest=_digest(file) if file else "",
        mark=_short_digest(str(root), MARK_CHARS),
    )
    return place.with_models(models, variables) if models else place


def folder_queue(place: Workplace) -> str:
    """Return a folder's task queue on the embedded server. The queues of its shells and programs begin with it."""
    return f"{TASK_QUEUE}-{place.mark}"


def is_earlier_queue(task_queue: str, home: Workplace | None, place: Workplace) -> bool:
    """Return whether a run of this folder is on its former queue, whose name also depended on the configuration."""
    if home is None or home.root != place.root:
        return False
    earlier = _short_digest(f"{home.root}\0{home.config or ''}", MARK_CHARS)
    return home.mark == earlier and task_queue.endswith(f"-{earlier}")


def own_queue(config: OrgaConfig, place: Workplace, *, embedded: bool) -> str:
    """Return the task queue. A configured server takes the configuration's, the embedded one that of folder and shell.

    On the embedded server the configuration names no queue, unless a command passes its folder's queue to its worker.
    """
    named, of_folder = config.temporal.task_queue or TASK_QUEUE, folder_queue(place)
    if not embedded or named.startswith(of_folder):
        return named
    return f"{of_folder}-{place.models}" if place.models else of_folder


async def recorded_workplace(run: WorkflowExecution) -> Workplace | None:
    """Return the workplace that a run was started for, or None if any worker may take it."""
    return workplace_of(await run.memo_value(WORKPLACE_MEMO, None))


async def recorded_policy(run: WorkflowExecution) -> str:
    """Return the policy that a run was started under, or "" if its memo names none."""
    named = await run.memo_value(POLICY_MEMO, "")
    return policy_in_memo(lambda _key, _default: named)


ANY_WORKER = "your project's own worker, or orga worker if it has none"
"""The worker to start for a run without a folder, as on a configured server. A project may define agents in code."""


def worker_command(place: Workplace | None, command: str | None = None) -> str:
    """Return the shell command that starts a worker for that place. It is `orga worker` unless `command` is given."""
    if place is None:
        return command or ANY_WORKER
    command = command or "orga worker"
    if not f"{place.folder}{place.config}{place.root}".isprintable():
        return command
    found = find_config(None, Path(place.folder), {})
    named = None if place.config in {None, str(found)} else Path(str(place.config))
    named = named if named is not None and named.is_file() else None  # a file that has moved is found at its new place
    there = [] if place.folder == str(Path.cwd()) else ["cd", shlex.quote(place.folder), "&&"]
    root = [] if _finds_root(named or found, place) else [f"{ROOT_VARIABLE}={shlex.quote(place.root)}"]
    # the names of variables come from the run's starter and may be anything
    differing = () if place.models in {"", _model_settings()[0]} else place.variables[:MAX_SHOWN]
    variables = [f"{name}=…" for name in differing if _VARIABLE.fullmatch(name)]
    option = [] if named is None else ["--config", shlex.quote(str(named))]
    return " ".join([*there, *root, *variables, command, *option])


def _model_settings() -> tuple[str, tuple[str, ...]]:
    """Return a short digest of the environment's model settings, and the variables that set them."""
    from orga.activities.adapters.models.model_settings import named_models  # this import loads no model code

    named = named_models(os.environ)
    return _short_digest(json.dumps(named, sort_keys=True), MODELS_CHARS) if named else "", tuple(sorted(named))


def _finds_root(config: Path | None, place: Workplace) -> bool:
    configured = _configured_root(config) if config else None
    root = Path(str(config)).parent / user_path(configured) if configured else Path(place.folder)
    return _file_text(root.resolve()) == place.root


def _configured_root(file: Path) -> str | None:
    """Return the root that a configuration names. The run's starter named the file, so it may be anything."""
    try:
        if not file.is_file() or file.stat().st_size > _MAX_BYTES:
            return None
        configured = read_toml(file.read_text(encoding="utf-8-sig"))["tools"]["files"]["root"]
    except (KeyError, OSError, TypeError, ValueError):
        return None
    return configured if isinstance(configured, str) and can_exist(configured) else None


def _short_digest(text: str, chars: int) -> str:
    return hashlib.sha256(text.encode(errors="surrogateescape")).hexdigest()[:chars]


def _digest(file: Path) -> str:
    try:
        return hashlib.sha256(file.read_bytes()).hexdigest()[:DIGEST_CHARS]
    except OSError:
        return ""


def _file_text(path: Path) -> str:
    return str(path).encode(errors="surrogateescape").decode(errors="replace")


_CLIENT_HOMES: "WeakKeyDictionary[Client, tuple[str, Workplace | None, Callable[[], str]]]" = WeakKeyDictionary()


def set_client_home(client: Client, queue: str, place: Workplace | None, policy: Callable[[], str] = str) -> None:
    """Remember the task queue, workplace and policy for the runs that this client starts."""
    _CLIENT_HOMES[client] = (queue, place, policy)


def queue_and_memo(client: Client) -> tuple[str, dict[str, Any]]:
    """Return the client's queue and the memo of a run that starts now. Other clients get the default queue."""
    queue, place, policy = _CLIENT_HOMES.get(client, (TASK_QUEUE, None, str))
    return queue, run_memo(place, policy())
