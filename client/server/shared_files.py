"""Files that several processes use: locks (flock), and writing so that a reader never sees a part of a file.

The kernel releases a lock however its holder dies, so no lock can be stale.
"""

import fcntl
import os
import tempfile
from collections.abc import Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO


def open_lock_file(path: Path) -> int:
    """Return a descriptor to lock. It is closed on exec unless it is listed in `pass_fds`."""
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)


def acquire_lock(path: Path, *, shared: bool = False) -> int:
    """Wait for the lock and return the descriptor that holds it. `os.close` releases it."""
    descriptor = open_lock_file(path)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH if shared else fcntl.LOCK_EX)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def try_lock(path: Path, *, shared: bool = False) -> int | None:
    """Return the descriptor that holds the lock, or None if somebody else has it."""
    descriptor = open_lock_file(path)
    try:
        fcntl.flock(descriptor, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    return descriptor


def is_locked(path: Path) -> bool:
    """Return whether somebody holds the lock exclusively. The check takes it shared, so two checks do not disturb each
    other.
    """
    if not path.exists():
        return False
    descriptor = try_lock(path, shared=True)
    if descriptor is None:
        return True
    os.close(descriptor)
    return False


@dataclass(frozen=True)
class Draft:
    file: BinaryIO
    path: Path

    def move_to(self, target: Path) -> None:
        """Replace that file, or a link, once the whole draft is on disk."""
        self.file.flush()
        os.fsync(self.file.fileno())
        self.path.replace(target)


@contextmanager
def draft_next_to(path: Path) -> Generator[Draft]:
    """Yield a draft in the folder of `path`, removed unless it becomes a file. Raise OSError if that is impossible."""
    descriptor, name = tempfile.mkstemp(prefix=".orga-", suffix=".part", dir=path.parent)
    try:
        with os.fdopen(descriptor, "wb") as file:
            yield Draft(file, Path(name))
    finally:
        with suppress(OSError):
            Path(name).unlink()


def write_atomically(path: Path, content: bytes) -> None:
    """Write a whole file. After an OSError the previous one is unchanged."""
    with draft_next_to(path) as draft:
        draft.file.write(content)
        draft.move_to(path)
