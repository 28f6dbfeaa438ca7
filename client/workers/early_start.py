"""A worker that is begun before its command knows what it is to do: what both are made of is loaded side by side.

It ends with the command if it gets no order, and loads nothing but our own code until it has one.
"""

import json
import os
import subprocess
import tempfile
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from orga.client.config.worker_order import WorkerOrder
from orga.client.server.endpoint import ServerUnavailable
from orga.client.server.home import prepare_home
from orga.client.server.locks import try_lock
from orga.start import module_command

KEPT_LOGS = 10


@dataclass(frozen=True)
class EarlyWorker:
    """A worker without an order."""

    process: subprocess.Popen[bytes]
    log: Path | None

    def give(self, order: WorkerOrder) -> None:
        """Tell it what it is to do; one that is gone already is found so by who waits for it."""
        told = {"arguments": order.arguments(), "environment": order.environment()}
        assert self.process.stdin is not None
        with suppress(BrokenPipeError):
            self.process.stdin.write(json.dumps(told).encode() + b"\n")
            self.process.stdin.flush()

    def end(self) -> None:
        """End it at once, without a trace."""
        self.process.kill()
        self.process.wait()
        if self.process.stdin is not None:
            with suppress(BrokenPipeError):  # of an order that it never read
                self.process.stdin.close()
        if self.log is not None:
            self.log.unlink(missing_ok=True)


_early_workers: list[tuple[EarlyWorker, int]] = []
"""With the lock that keeps other commands from the same."""


def begin_ahead() -> None:
    """Begin a worker that this command will probably need, unless another command is at that point.

    Of two hundred commands that start at once, one has to find out that a worker is there.
    """
    if _early_workers:
        return
    with suppress(OSError, ServerUnavailable):  # whoever needs it is told
        lock = try_lock(prepare_home().ahead_lock)
        if lock is None:
            return
        try:
            _early_workers.append((start_without_order(), lock))
        except OSError:
            os.close(lock)


def dismiss() -> None:
    """End what was begun ahead and is not needed."""
    while _early_workers:
        begun, lock = _early_workers.pop()
        begun.end()
        os.close(lock)


def take_or_start() -> EarlyWorker:
    """Return what was begun ahead, else one that begins now."""
    if not _early_workers:
        return start_without_order()
    begun, lock = _early_workers.pop()
    os.close(lock)
    return begun


def start_without_order() -> EarlyWorker:
    """Begin a worker in the working directory; its output goes to a file in orga's home."""
    folder = prepare_home().folder
    descriptor, draft = tempfile.mkstemp(prefix="worker-", suffix=".starting", dir=folder)
    with os.fdopen(descriptor, "wb") as log:
        process = start_writing_to(log.fileno())
    log = Path(draft).rename(folder / f"worker-{process.pid}.log")
    _prune(folder)
    return EarlyWorker(process, log)


def start_writing_to(output: int | None) -> subprocess.Popen[bytes]:
    """Begin a worker that writes there; None is where this command writes, each of its two streams."""
    return subprocess.Popen(
        module_command("orga.client.workers.child"),
        stdin=subprocess.PIPE,
        stdout=output,
        stderr=None if output is None else subprocess.STDOUT,
        start_new_session=True,  # a Ctrl-C is for the command, which then stops its worker
    )


def _prune(folder: Path) -> None:
    """Remove all but the newest logs of workers that have ended."""
    ended = [log for log in folder.glob("worker-*.log") if not _may_live(log)]
    for old in sorted(ended, key=_modified_at)[:-KEPT_LOGS]:
        old.unlink(missing_ok=True)


def _may_live(log: Path) -> bool:
    """Return whether there is a process of the number in the log's name, the worker's or a later one's."""
    try:
        os.kill(int(log.stem.removeprefix("worker-")), 0)
    except (ValueError, OverflowError, ProcessLookupError):
        return False
    except PermissionError:
        return True
    return True


def _modified_at(log: Path) -> float:
    try:
        return log.stat().st_mtime
    except FileNotFoundError:  # another command has removed it
        return 0.0
