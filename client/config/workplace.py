"""Which folder and configuration a command or a worker is at home in, and the task queue that goes with them.

All folders share the embedded server, so each has a queue of its own there: no worker takes another folder's runs. It
stays the same when `orga.toml` appears, changes or moves. A shell whose environment says which models are asked has a
queue of its own beside it: a worker of another shell would send its prompts elsewhere.
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
from orga.client.config.worker_order import ROOT_VARIABLE
from orga.client.user_path import user_path
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

MARK_CHARS = 10
MODELS_CHARS = 8
MAX_SHOWN = 5
"""Variables in a command that is shown."""
_VARIABLE = re.compile(r"[A-Z][A-Z0-9_]{0,80}")
DIGEST_CHARS = 12
_MAX_BYTES = 1_000_000


def workplace(config: OrgaConfig, root: Path | None = None) -> Workplace:
    """Return the place of a process that works here with this configuration; `root` wins over the configuration's."""
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
    """Return the task queue of a folder on the embedded server; the queues of its shells and programs begin with it."""
    return f"{TASK_QUEUE}-{place.mark}"


def is_earlier_queue(task_queue: str, home: Workplace | None, place: Workplace) -> bool:
    """Return whether a run of this folder is on the queue that the folder had when its configuration was part of it."""
    if home is None or home.root != place.root:
        return False
    earlier = _short_digest(f"{home.root}\0{home.config or ''}", MARK_CHARS)
    return home.mark == earlier and task_queue.endswith(f"-{earlier}")


def own_queue(config: OrgaConfig, place: Workplace, *, embedded: bool) -> str:
    """Return the task queue: of the configuration, and on the embedded server of this folder and shell.

    There the configuration names none, but for the queue of this folder that a command hands to its worker.
    """
    named, of_folder = config.temporal.task_queue or TASK_QUEUE, folder_queue(place)
    if not embedded or named.startswith(of_folder):
        return named
    return f"{of_folder}-{place.models}" if place.models else of_folder


async def recorded_workplace(run: WorkflowExecution) -> Workplace | None:
    """Return the place that a run was started for; None where it was started for any."""
    return workplace_of(await run.memo_value(WORKPLACE_MEMO, None))


async def recorded_policy(run: WorkflowExecution) -> str:
    """Return the policy that a run was started under, "" where its memo names none."""
    named = await run.memo_value(POLICY_MEMO, "")
    return policy_in_memo(lambda _key, _default: named)


ANY_WORKER = "your project's own worker, or orga worker if it has none"
"""What takes a run that was started for no folder, as on a configured server: a project may have agents in code."""


def worker_command(place: Workplace | None, command: str | None = None) -> str:
    """Return how a worker for that place is started from the working folder, by `orga worker` unless it is another."""
    if place is None:
        return command or ANY_WORKER
    command = command or "orga worker"
    if not f"{place.folder}{place.config}{place.root}".isprintable():
        return command
    found = find_config(None, Path(place.folder), {})
    named = None if place.config in {None, str(found)} else Path(str(place.config))
    named = named if named is not None and named.is_file() else None  # one that has moved is found where it is now
    there = [] if place.folder == str(Path.cwd()) else ["cd", shlex.quote(place.folder), "&&"]
    root = [] if _finds_root(named or found, place) else [f"{ROOT_VARIABLE}={shlex.quote(place.root)}"]
    return " ".join([*there, *root, *_settings_to_repeat(place), command, *_as_option(named)])


def _as_option(config: Path | None) -> list[str]:
    return [] if config is None else ["--config", shlex.quote(str(config))]


def _settings_to_repeat(place: Workplace) -> list[str]:
    """Return the variables about models that are different here. A starter of runs may have written any names."""
    if place.models in {"", _model_settings()[0]}:
        return []
    return [f"{name}=…" for name in place.variables[:MAX_SHOWN] if _VARIABLE.fullmatch(name)]


def _model_settings() -> tuple[str, tuple[str, ...]]:
    """Return what the environment says about models, as a short digest, and the variables that say it."""
    from orga.activities.adapters.models.settings import named_models  # with no model's code

    named = named_models(os.environ)
    return _short_digest(json.dumps(named, sort_keys=True), MODELS_CHARS) if named else "", tuple(sorted(named))


def _finds_root(config: Path | None, place: Workplace) -> bool:
    said = _configured_root(config) if config else None
    root = Path(str(config)).parent / user_path(said) if said else Path(place.folder)
    return _file_text(root.resolve()) == place.root


def _configured_root(file: Path) -> str | None:
    """Return the root that a configuration names. Whoever started the run named the file: it may be anything."""
    try:
        if not file.is_file() or file.stat().st_size > _MAX_BYTES:
            return None
        said = read_toml(file.read_text(encoding="utf-8-sig"))["tools"]["files"]["root"]
    except (KeyError, OSError, TypeError, ValueError):
        return None
    return said if isinstance(said, str) and can_exist(said) else None


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
    """Keep in mind which queue a client's runs go to, for which place, and under which policy."""
    _CLIENT_HOMES[client] = (queue, place, policy)


def queue_and_memo(client: Client) -> tuple[str, dict[str, Any]]:
    """Return that queue, and the memo of a run that starts now; for another client the usual queue, and nothing."""
    queue, place, policy = _CLIENT_HOMES.get(client, (TASK_QUEUE, None, str))
    return queue, run_memo(place, policy())
