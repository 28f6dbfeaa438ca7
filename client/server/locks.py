"""Locks on files (flock). The kernel releases them however their holder dies, so no lock can be stale.

A lock belongs to the open file. A child that inherits the descriptor holds it too, while it lives.
"""

import fcntl
import os
from pathlib import Path


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
