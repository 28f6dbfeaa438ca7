"""A command and all that it started, however far it moved away."""

import os
import signal
import time
from contextlib import suppress

from orga.activities.adapters.sandbox.prctl import IS_LINUX

_PAUSE_S = 0.005
_KILL_TIMEOUT_S = 1.5
"""What hangs in the kernel longer is left to it."""


class ProcessTree:
    """Descendants of this process, which adopts those that lose their parent.

    Elsewhere than on Linux it knows the command and its process group only.
    """

    def __init__(self, child: int) -> None:
        self.child = child
        self.status: int | None = None
        """Of the command, as `wait` gives it, once it has ended."""
        self.cpu_s = 0.0

    def reap(self) -> bool:
        """Take in what has ended; return whether a child is left."""
        while True:
            try:
                pid, status, usage = os.wait4(-1, os.WNOHANG)
            except ChildProcessError:
                return False
            if not pid:
                return True
            if pid == self.child:
                self.status, self.cpu_s = status, usage.ru_utime + usage.ru_stime

    def running(self) -> int:
        """Return how many run."""
        return len(_descendants())

    def end(self, grace_s: float, spared: int | None) -> None:
        """Ask all but `spared` to end and wait a while, then kill all, new ones too, until none is left."""
        if grace_s:
            self._ask_to_end(spared)
            self._wait_until_gone(grace_s)
        killed_by = time.monotonic() + _KILL_TIMEOUT_S
        # At once: with bubblewrap it takes all others along, and what multiplies mostly stays in its group.
        self._kill_group(self.child)
        while self.reap() and time.monotonic() < killed_by:
            for group in {group for _, group in _descendants()}:
                self._kill_group(group)
            time.sleep(_PAUSE_S)

    def _ask_to_end(self, spared: int | None) -> None:
        asked = [pid for pid, _ in _descendants() if pid != spared]
        for pid in asked or [self.child]:  # with nothing in it yet, what is spared has nothing to end in peace
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGTERM)

    def _kill_group(self, group: int) -> None:
        """Kill a whole group in one step, in which none of it can fork."""
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(group, signal.SIGKILL)

    def _wait_until_gone(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while self.reap() and time.monotonic() < until:
            time.sleep(_PAUSE_S)


def _descendants() -> list[tuple[int, int]]:
    """Return process and group of each, found by their parents. In other sessions, they are in other groups."""
    children = _children_by_parent() if IS_LINUX else {}
    found = [(os.getpid(), 0)]
    for parent, _ in found:
        found += children.get(parent, ())
    return found[1:]


def _children_by_parent() -> dict[int, list[tuple[int, int]]]:
    """Return by parent what is on this machine, and in which group. What has a dead first thread may yet run."""
    children: dict[int, list[tuple[int, int]]] = {}
    for entry in os.scandir("/proc"):
        if entry.name.isdigit():
            with suppress(OSError, ValueError):
                parent, group = _parent_and_group(entry.name)
                children.setdefault(int(parent), []).append((int(entry.name), int(group)))
    return children


def _parent_and_group(pid: str) -> list[bytes]:
    """Return parent and group, which stand behind a name that may hold anything."""
    file = os.open(f"/proc/{pid}/stat", os.O_RDONLY)
    try:
        return os.read(file, 1_024).rpartition(b")")[2].split()[1:3]
    finally:
        os.close(file)
