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

MARK_CHARS, MODELS_CHARS, DIGEST_CHARS = 10, 8, 12
"""Hexadecimal characters of three digests: of a root, of model settings, and of a configuration file."""
MAX_SHOWN_VARIABLES = 5
"""Variables that a displayed command names."""
_VARIABLE = re.compile(r"[A-Z][A-Z0-9_]{0,80}")
_MAX_CONFIG_BYTES = 1_000_000


def workplace(config: OrgaConfig, root: Path | None = None) -> Workplace:
    """Return the workplace of a process here with this configuration. `root` overrides the configuration's root."""
    root = (root or config.tools.files.root or Path.cwd()).resolve()
    file = config.file.resolve() if config.file else None
    models, variables = _model_settings()
    current = Workplace(
        folder=_printable_path(Path.cwd()),
        root=_printable_path(root),
        config=_printable_path(file) if file else None,
        digest=_digest(file) if file else "",
        mark=mark_digest(str(root)),
    )
    return current.with_models(models, variables) if models else current


def folder_queue(workplace: Workplace) -> str:
    """Return a folder's queue on the embedded server. The queues of its shells and programs begin with this name."""
    return f"{TASK_QUEUE}-{workplace.mark}"


def is_earlier_queue(task_queue: str, recorded: Workplace | None, current: Workplace) -> bool:
    """Return whether a run of this folder is on its former queue. That name also depended on the configuration."""
    if recorded is None or recorded.root != current.root:
        return False
    earlier = mark_digest(f"{recorded.root}\0{recorded.config or ''}")
    return recorded.mark == earlier and task_queue.endswith(f"-{earlier}")


def own_queue(config: OrgaConfig, workplace: Workplace, *, embedded: bool) -> str:
    """Return the task queue of a process. On a configured server, it is the configuration's.

    On the embedded server, folder and shell decide, unless a command passes a queue of its folder to its worker.
    """
    configured, of_folder = config.temporal.task_queue or TASK_QUEUE, folder_queue(workplace)
    if not embedded or configured.startswith(of_folder):
        return configured
    return f"{of_folder}-{workplace.models}" if workplace.models else of_folder


async def recorded_workplace(run: WorkflowExecution) -> Workplace | None:
    """Return the workplace that a run was started for, or None if any worker may take it.

    It is also None if this client lacks the codec of the run.
    """
    try:
        return workplace_of(await run.memo_value(WORKPLACE_MEMO, None))
    except Exception:  # a codec may raise anything
        return None


async def recorded_policy(run: WorkflowExecution) -> str:
    """Return the policy that a run was started under, or "" if its memo names none."""
    named = await run.memo_value(POLICY_MEMO, "")
    return policy_in_memo(lambda _key, _default: named)


ANY_WORKER = "your project's own worker, or orga worker if it has none"
"""The worker to start for a run without a workplace. A project's worker comes first: it may define agents in code."""


def worker_command(workplace: Workplace | None, command: str | None = None) -> str:
    """Return the shell command that starts a worker in a workplace. It is `orga worker` unless `command` is given."""
    if workplace is None:
        return command or ANY_WORKER
    command = command or "orga worker"
    if not f"{workplace.folder}{workplace.config}{workplace.root}".isprintable():
        return command
    config = find_config(None, Path(workplace.folder), {})
    words = [] if workplace.folder == str(Path.cwd()) else ["cd", shlex.quote(workplace.folder), "&&"]
    option: list[str] = []
    if workplace.config is not None and workplace.config != str(config) and Path(workplace.config).is_file():
        config = Path(workplace.config)
        option = ["--config", shlex.quote(workplace.config)]
    if not _finds_root(config, workplace):
        words.append(f"{ROOT_VARIABLE}={shlex.quote(workplace.root)}")
    if workplace.models not in {"", _model_settings()[0]}:
        # the names of variables come from the run's starter and may be anything
        shown = workplace.variables[:MAX_SHOWN_VARIABLES]
        words += [f"{name}=…" for name in shown if _VARIABLE.fullmatch(name)]
    return " ".join([*words, command, *option])


def _model_settings() -> tuple[str, tuple[str, ...]]:
    """Return a short digest of the environment's model settings, and the variables that set them."""
    from orga.activities.adapters.models.model_settings import named_models  # this import loads no model code

    named = named_models(os.environ)
    if not named:
        return "", ()
    return mark_digest(json.dumps(named, sort_keys=True), MODELS_CHARS), tuple(sorted(named))


def _finds_root(config: Path | None, workplace: Workplace) -> bool:
    """Return whether a worker with this configuration uses the workplace's root without a variable."""
    root = Path(workplace.folder)
    if config is not None and (configured := _configured_root(config)):
        root = config.parent / user_path(configured)
    return _printable_path(root.resolve()) == workplace.root


def _configured_root(file: Path) -> str | None:
    """Return the root that a file names. The run's starter named the file, so the file may contain anything."""
    try:
        if not file.is_file() or file.stat().st_size > _MAX_CONFIG_BYTES:
            return None
        configured = read_toml(file.read_text(encoding="utf-8-sig"))["tools"]["files"]["root"]
    except (KeyError, OSError, TypeError, ValueError):
        return None
    return configured if isinstance(configured, str) and can_exist(configured) else None


def mark_digest(text: str, chars: int = MARK_CHARS) -> str:
    return hashlib.sha256(text.encode(errors="surrogateescape")).hexdigest()[:chars]


def _digest(file: Path) -> str:
    try:
        return hashlib.sha256(file.read_bytes()).hexdigest()[:DIGEST_CHARS]
    except OSError:
        return ""


def _printable_path(path: Path) -> str:
    """Return the path with a replacement character for each byte that is not UTF-8."""
    return str(path).encode(errors="surrogateescape").decode(errors="replace")


_CLIENT_HOMES: "WeakKeyDictionary[Client, tuple[str, Workplace | None, Callable[[], str]]]" = WeakKeyDictionary()
"""Task queue, workplace and policy of the runs that a client starts."""


def set_client_home(client: Client, queue: str, workplace: Workplace | None, policy: Callable[[], str] = str) -> None:
    """Remember the task queue, workplace and policy for the runs that this client starts."""
    _CLIENT_HOMES[client] = (queue, workplace, policy)


def queue_and_memo(client: Client) -> tuple[str, dict[str, Any]]:
    """Return the client's queue and the memo of a run that starts now. The queue is the default without a home."""
    queue, home, policy = _CLIENT_HOMES.get(client, (TASK_QUEUE, None, str))
    return queue, run_memo(home, policy())
