"""All processes that a command started, even outside its group, and the Linux settings that hold them together."""

import ctypes
import os
import signal
import sys
import time
from contextlib import suppress

IS_LINUX = sys.platform == "linux"
SET_PARENT_DEATH_SIGNAL, SET_CHILD_SUBREAPER, SET_NO_NEW_PRIVILEGES = 1, 36, 38


def set_process_option(option: int, value: int) -> None:
    """Call prctl(2)."""
    if IS_LINUX:
        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


_PAUSE_S = 0.005
_KILL_TIMEOUT_S = 1.5
"""Seconds to wait for killed processes. One that hangs longer in the kernel is left alone."""


class ProcessTree:
    """The descendants of this process, which adopts orphans.

    On other systems than Linux it knows only the command and its process group.
    """

    def __init__(self, child: int) -> None:
        self.child = child
        self.status: int | None = None
        """The command's wait status, after it has ended."""
        self.cpu_s = 0.0

    def reap(self) -> bool:
        """Collect ended children, and return whether any is left."""
        while True:
            try:
                pid, status, usage = os.wait4(-1, os.WNOHANG)
            except ChildProcessError:
                return False
            if not pid:
                return True
            if pid == self.child:
                self.status, self.cpu_s = status, usage.ru_utime + usage.ru_stime

    def running_count(self) -> int:
        return len(_descendants())

    def end(self, grace_s: float, spared: int | None) -> None:
        """Ask all but `spared` to end and wait a while. Then kill all, including new ones, until none is left."""
        if grace_s:
            self._ask_to_end(spared)
            self._wait_until_gone(grace_s)
        killed_by = time.monotonic() + _KILL_TIMEOUT_S
        # First the group: bubblewrap's end kills all others, and multiplying processes mostly stay in their group.
        self._kill_group(self.child)
        while self.reap() and time.monotonic() < killed_by:
            for group in {group for _, group in _descendants()}:
                self._kill_group(group)
            time.sleep(_PAUSE_S)

    def _ask_to_end(self, spared: int | None) -> None:
        asked = [pid for pid, _ in _descendants() if pid != spared]
        for pid in asked or [self.child]:  # without other processes, the spared one has nothing to wait for
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGTERM)

    def _kill_group(self, group: int) -> None:
        """Kill a whole group in one step, so that none of its processes can fork in between."""
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(group, signal.SIGKILL)

    def _wait_until_gone(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while self.reap() and time.monotonic() < until:
            time.sleep(_PAUSE_S)


def _descendants() -> list[tuple[int, int]]:
    """Return process and group of each descendant, found by parents, because other sessions have other groups."""
    children = _children_by_parent() if IS_LINUX else {}
    found = [(os.getpid(), 0)]
    for parent, _ in found:
        found += children.get(parent, ())
    return found[1:]


def _children_by_parent() -> dict[int, list[tuple[int, int]]]:
    """Return all processes with their groups by parent. A process with a dead first thread may still run."""
    children: dict[int, list[tuple[int, int]]] = {}
    for entry in os.scandir("/proc"):
        if entry.name.isdigit():
            with suppress(OSError, ValueError):
                parent, group = _parent_and_group(entry.name)
                children.setdefault(int(parent), []).append((int(entry.name), int(group)))
    return children


def _parent_and_group(pid: str) -> list[bytes]:
    """Return parent and group. They come after the process's name, which may contain anything."""
    file = os.open(f"/proc/{pid}/stat", os.O_RDONLY)
    try:
        return os.read(file, 1_024).rpartition(b")")[2].split()[1:3]
    finally:
        os.close(file)
