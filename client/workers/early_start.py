"""Starts a worker before its command knows the worker's settings, so that both load their code at the same time.

The settings come later, as an order. Until then the worker loads only our own code, and it ends with the command.
"""

import json
import os
import subprocess
import tempfile
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from orga.activities.adapters.shared_files import try_lock
from orga.client.errors import ServerUnavailable
from orga.client.server.home import prepare_home
from orga.start import module_command

KEPT_LOGS = 10
"""Logs of ended workers. Older ones are deleted."""

POLLING_MESSAGE = "worker polls task queue"
"""The first words of the line that a worker logs once it polls."""

ENDING_MESSAGE = "worker ends"
"""The first words of the line that a worker logs once it takes no more tasks."""


@dataclass(frozen=True)
class WorkerOrder:
    """The settings that a worker gets at its start."""

    address: str | None
    """None means the embedded server. The worker finds it itself, and must not send it credentials."""
    namespace: str | None
    task_queue: str
    config: Path | None = None
    root: Path | None = None
    """Folder of the file tools. None takes the configured folder, else the working directory."""
    json_logs: bool = False
    folder_queue: str | None = None
    """A second queue that the worker polls."""
    deployment: str | None = None
    """Name of the deployment that the worker belongs to. None for a worker without a version."""

    def environment(self) -> dict[str, str]:
        """Return the settings that have no command line option, as environment variables."""
        from orga.client.config.workplace import ROOT_VARIABLE  # a worker starts before its command loads this module

        return {ROOT_VARIABLE: str(self.root)} if self.root else {}

    def arguments(self) -> list[str]:
        options = (
            ("--address", self.address),
            ("--namespace", self.namespace),
            ("--task-queue", self.task_queue),
            ("--task-queue", self.folder_queue),
            ("--config", self.config),
            ("--deployment", self.deployment),
        )
        arguments = [text for name, value in options if value for text in (name, str(value))]
        return [*arguments, "--json-logs"] if self.json_logs else arguments


@dataclass(frozen=True)
class EarlyWorker:
    process: subprocess.Popen[bytes]
    log: Path | None = None

    def send_order(self, order: WorkerOrder) -> None:
        """Send the order. If the worker has died, do nothing: the command notices that when it waits for the worker."""
        order_line = {"arguments": order.arguments(), "environment": order.environment()}
        assert self.process.stdin is not None
        with suppress(BrokenPipeError):
            self.process.stdin.write(json.dumps(order_line).encode() + b"\n")
            self.process.stdin.flush()

    def end(self) -> None:
        """End the worker at once and delete its log."""
        self.process.kill()
        self.process.wait()
        if self.process.stdin is not None:
            with suppress(BrokenPipeError):  # the worker never read its order
                self.process.stdin.close()
        if self.log is not None:
            self.log.unlink(missing_ok=True)


class _EarlyStart(NamedTuple):
    worker: EarlyWorker
    lock: int
    """The lock that keeps other commands from starting a worker early, too."""


_early_starts: list[_EarlyStart] = []
"""At most one."""


def start_early() -> None:
    """Start a worker that this command will probably need, unless another command is doing the same.

    So if two hundred commands start at once, at most one worker is started for nothing.
    """
    if _early_starts:
        return
    with suppress(OSError, ServerUnavailable):  # if the command needs a worker later, it reports the error
        lock = try_lock(prepare_home().early_worker_lock)
        if lock is None:
            return
        try:
            _early_starts.append(_EarlyStart(start_without_order(), lock))
        except OSError:
            os.close(lock)


def end_early() -> None:
    while _early_starts:
        worker, lock = _early_starts.pop()
        worker.end()
        os.close(lock)


def take_or_start() -> EarlyWorker:
    if not _early_starts:
        return start_without_order()
    worker, lock = _early_starts.pop()
    os.close(lock)
    return worker


def start_without_order() -> EarlyWorker:
    """Start a worker in the working directory. Its output goes to a file in orga's home."""
    folder = prepare_home().folder
    descriptor, draft = tempfile.mkstemp(prefix="worker-", suffix=".starting", dir=folder)
    with os.fdopen(descriptor, "wb") as output:
        process = start_process(output.fileno())
    log = Path(draft).rename(folder / f"worker-{process.pid}.log")
    ended = [old_log for old_log in folder.glob("worker-*.log") if not _may_live(old_log)]
    for old_log in sorted(ended, key=_modified_at)[:-KEPT_LOGS]:
        old_log.unlink(missing_ok=True)
    return EarlyWorker(process, log)


def start_process(output: int | None) -> subprocess.Popen[bytes]:
    """Start a worker that writes to `output`. None means standard output and error of this command."""
    return subprocess.Popen(
        module_command("orga.client.workers.child"),
        stdin=subprocess.PIPE,
        stdout=output,
        stderr=None if output is None else subprocess.STDOUT,
        start_new_session=True,  # Ctrl-C reaches only the command, which then stops its worker
    )


def _may_live(log: Path) -> bool:
    """Return whether a process with the number in the log's name exists. It may be another one than the worker."""
    try:
        os.kill(int(log.stem.removeprefix("worker-")), 0)
    except PermissionError:  # the process exists, and belongs to another user
        return True
    except (ValueError, OverflowError, ProcessLookupError):
        return False
    return True


def _modified_at(log: Path) -> float:
    try:
        return log.stat().st_mtime
    except FileNotFoundError:  # another command has removed it
        return 0.0
