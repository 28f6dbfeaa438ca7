"""Locks on files (flock). The kernel gives them back however their holder dies, so none can be stale.

A lock belongs to the open file: a child that inherits the descriptor holds it too, as long as it lives.
"""

import fcntl
import os
from pathlib import Path


def open_lock_file(path: Path) -> int:
    """Return a descriptor to lock. It is closed on exec unless it is passed on by name (`pass_fds`)."""
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)


def acquire_lock(path: Path, *, shared: bool = False) -> int:
    """Return the descriptor that holds the lock, after waiting for it. `os.close` gives the lock back."""
    descriptor = open_lock_file(path)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH if shared else fcntl.LOCK_EX)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def try_lock(path: Path, *, shared: bool = False) -> int | None:
    """Return the descriptor that holds the lock, or None when another one has it."""
    descriptor = open_lock_file(path)
    try:
        fcntl.flock(descriptor, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    return descriptor


def is_locked(path: Path) -> bool:
    """Tell whether someone holds the lock for itself alone. Asking is shared: two who ask see no one."""
    if not path.exists():
        return False
    descriptor = try_lock(path, shared=True)
    if descriptor is None:
        return True
    os.close(descriptor)
    return False
