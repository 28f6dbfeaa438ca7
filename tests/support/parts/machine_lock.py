"""Lets one test process at a time prepare something for the whole machine."""

import fcntl
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def machine_lock(path: Path) -> Generator[None]:
    """Wait for the lock on `path` and hold it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
