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
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

from temporalio.client import Client, WorkflowExecution

from orga.activities.adapters.toml_text import read_toml
from orga.client.config.file import nearest_config
from orga.client.config.sections import OrgaConfig
from orga.client.errors import ConfigError
from orga.client.server.home import user_path
from orga.workflows.types.names import TASK_QUEUE
from orga.workflows.types.tool_calls.sandbox import can_exist
from orga.workflows.types.workplace import POLICY_MEMO, WORKPLACE_MEMO, Workplace, policy_of, run_memo, workplace_of

ROOT_VARIABLE = "ORGA_TOOLS__FILES__ROOT"

_MAX_SHOWN_VARIABLES = 5
"""Variables that a displayed command names."""
_VARIABLE = re.compile(r"[A-Z][A-Z0-9_]{0,80}")
_MAX_CONFIG_BYTES = 1_000_000
_FILE_DIGEST_CHARS = 12


def workplace(config: OrgaConfig, root: Path | None = None) -> Workplace:
    """Return the workplace of a process here with this configuration. `root` overrides the configuration's root."""
    root = (root or config.tools.files.root or Path.cwd()).resolve()
    file = config.file.resolve() if config.file else None
    models = _model_settings()
    current = Workplace(
        folder=_printable_path(Path.cwd()),
        root=_printable_path(root),
        config=_printable_path(file) if file else None,
        digest=_file_digest(file) if file else "",
        mark=short_digest(str(root)),
    )
    return current.with_models(models.digest, models.variables) if models.variables else current


def folder_queue(workplace: Workplace) -> str:
    """Return a folder's queue on the embedded server. The queues of its shells and programs begin with this name."""
    return f"{TASK_QUEUE}-{workplace.mark}"


def is_earlier_queue(task_queue: str, recorded: Workplace | None, current: Workplace) -> bool:
    """Return whether a run of this folder is on its former queue. That name also depended on the configuration."""
    if recorded is None or recorded.root != current.root:
        return False
    earlier = short_digest(f"{recorded.root}\0{recorded.config or ''}")
    return recorded.mark == earlier and task_queue.endswith(f"-{earlier}")


def own_queue(config: OrgaConfig, workplace: Workplace, *, embedded: bool) -> str:
    """Return the task queue of a process. On a configured server, it is the configuration's.

    On the embedded server, folder and shell decide, unless a command passes a queue of its folder to its worker.
    """
    configured = config.temporal.task_queue or TASK_QUEUE
    queue = folder_queue(workplace)
    if not embedded or configured.startswith(queue):
        return configured
    return f"{queue}-{workplace.models}" if workplace.models else queue


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
    return policy_of(await run.memo_value(POLICY_MEMO, ""))


ANY_WORKER = "your project's own worker, or orga worker if it has none"
"""The worker to start for a run without a workplace. A project's worker comes first: it may define agents in code."""


def worker_command(workplace: Workplace | None) -> str:
    """Return the shell command that starts a worker in the workplace of a run."""
    return command_in(workplace, "orga worker") if workplace else ANY_WORKER


def command_in(workplace: Workplace, command: str) -> str:
    """Return the shell command that runs `command` with the folder, configuration, root and models of a workplace.

    The run's starter wrote the workplace, so its texts may be anything, and its paths may be unreadable.
    """
    paths = (workplace.folder, workplace.root, workplace.config or "")
    if not all(path.isprintable() and can_exist(path) for path in paths):
        return command
    nearest: Path | None = None
    with suppress(ConfigError, OSError):
        nearest = nearest_config(Path(workplace.folder))
    other_config = _other_config(workplace, nearest)
    words: list[str] = []
    if workplace.folder != str(Path.cwd()):
        words += ["cd", shlex.quote(workplace.folder), "&&"]
    if not _finds_root(other_config or nearest, workplace):
        words.append(f"{ROOT_VARIABLE}={shlex.quote(workplace.root)}")
    if workplace.models not in {"", _model_settings().digest}:
        shown = workplace.variables[:_MAX_SHOWN_VARIABLES]
        words += [f"{name}=…" for name in shown if _VARIABLE.fullmatch(name)]
    words.append(command)
    if other_config:
        words += ["--config", shlex.quote(str(other_config))]
    return " ".join(words)


def _other_config(workplace: Workplace, nearest: Path | None) -> Path | None:
    """Return the workplace's configuration, if a command in its folder would not find it without `--config`."""
    if workplace.config is None or workplace.config == str(nearest):
        return None
    config = Path(workplace.config)
    with suppress(OSError):
        if config.is_file():
            return config
    return None


class _ModelSettings(NamedTuple):
    """The environment's model settings. Both fields are empty if there are none."""

    digest: str = ""
    variables: tuple[str, ...] = ()
    """The variables that set them."""


def _model_settings() -> _ModelSettings:
    from orga.activities.adapters.models.model_settings import named_models  # this import loads no model code

    named = named_models(os.environ)
    if not named:
        return _ModelSettings()
    return _ModelSettings(short_digest(json.dumps(named, sort_keys=True), chars=8), tuple(sorted(named)))


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


def short_digest(text: str, chars: int = 10) -> str:
    """Return the first hexadecimal characters of the text's sha256."""
    return hashlib.sha256(text.encode(errors="surrogateescape")).hexdigest()[:chars]


def _file_digest(file: Path) -> str:
    try:
        return hashlib.sha256(file.read_bytes()).hexdigest()[:_FILE_DIGEST_CHARS]
    except OSError:
        return ""


def _printable_path(path: Path) -> str:
    """Return the path with a replacement character for each byte that is not UTF-8."""
    return str(path).encode(errors="surrogateescape").decode(errors="replace")


class _ClientHome(NamedTuple):
    queue: str = TASK_QUEUE
    workplace: Workplace | None = None
    current_policy: Callable[[], str] = lambda: ""


_CLIENT_HOMES: "WeakKeyDictionary[Client, _ClientHome]" = WeakKeyDictionary()


def set_client_home(
    client: Client, queue: str, workplace: Workplace | None, current_policy: Callable[[], str] = lambda: ""
) -> None:
    """Remember the task queue, workplace and policy for the runs that this client starts."""
    _CLIENT_HOMES[client] = _ClientHome(queue, workplace, current_policy)


def client_queue(client: Client) -> str:
    """Return the task queue of the runs that this client starts, unless a call names another one."""
    return _CLIENT_HOMES.get(client, _ClientHome()).queue


def client_memo(client: Client) -> dict[str, Any]:
    """Return the memo of a run that this client starts now."""
    home = _CLIENT_HOMES.get(client, _ClientHome())
    return run_memo(home.workplace, home.current_policy())
