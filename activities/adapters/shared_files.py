"""Files that several processes use: locks (flock), and reading and writing whole files.

The kernel releases a lock however its holder dies, so no lock can be stale. A lock belongs to the open file. A child
that inherits the descriptor also holds the lock while it lives.

A file is written as a draft next to it, which then replaces it. A draft has a random name, so nobody can place a link
there. Only its owner can read it.
"""

import fcntl
import os
import stat
import tempfile
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Generic, TypeVar

Content = TypeVar("Content")


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
    """Return whether somebody holds the lock exclusively. The check locks shared, so two checks never collide."""
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
        """Replace the target, or a link in its place, after the whole draft is on disk."""
        self.file.flush()
        os.fsync(self.file.fileno())
        self.path.replace(target)


@contextmanager
def draft_next_to(path: Path) -> Generator[Draft]:
    """Yield a draft in the folder of `path`. It is removed at the end, unless it was moved. May raise OSError."""
    descriptor, name = tempfile.mkstemp(prefix=".orga-", suffix=".part", dir=path.parent)
    try:
        with os.fdopen(descriptor, "wb") as file:
            yield Draft(file, Path(name))
    finally:
        with suppress(OSError):
            Path(name).unlink()


def write_atomically(path: Path, content: bytes, *, with_folder: bool = False) -> None:
    """Write a whole file that only its owner reads. After an OSError the previous one is unchanged.

    Args:
        with_folder: Create the folder, private as well, if there is none.
    """
    if with_folder:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with draft_next_to(path) as draft:
        draft.file.write(content)
        draft.move_to(path)


class OwnFile(Generic[Content]):
    """A file of this user that other processes replace. Its content is parsed again only after a change."""

    def __init__(self, path: Path, parse: Callable[[bytes], Content], *, max_bytes: int, denied: int = 0o077) -> None:
        """Name the file.

        Args:
            path: The file. A link is not followed.
            parse: Returns the content. It may raise ValueError.
            max_bytes: The largest size.
            denied: Permissions that no other user may have.
        """
        self.path = path
        self._parse = parse
        self._max_bytes = max_bytes
        self._denied = denied
        self._stamp: tuple[int, int] | None = None
        """Inode and time of the last change of the content. None if there is none."""
        self._content: Content | None = None

    def read(self) -> Content | None:
        """Return the content. None: there is no valid file, or others may use it."""
        try:
            descriptor = os.open(self.path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
            with os.fdopen(descriptor, "rb") as file:
                status = os.fstat(descriptor)
                stamp = (status.st_ino, status.st_mtime_ns) if self._is_usable(status) else None
                if stamp is None:
                    self._content = None
                elif stamp != self._stamp:
                    self._content = self._parse(file.read())
                self._stamp = stamp
        except (OSError, ValueError, RecursionError):
            self._stamp = self._content = None
        return self._content

    def _is_usable(self, status: os.stat_result) -> bool:
        is_private = status.st_uid == os.geteuid() and not status.st_mode & self._denied
        return is_private and stat.S_ISREG(status.st_mode) and status.st_size <= self._max_bytes
