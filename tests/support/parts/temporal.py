"""The `temporal` command for tests, found as users' commands find it, so that a fresh machine downloads it once."""

import asyncio
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from shutil import disk_usage
from tempfile import TemporaryDirectory

from orga.client.server.obtain import locate

MEMORY = Path("/dev/shm")
MEMORY_BYTES = 4_000_000_000
"""Free bytes that a file system in memory needs for the databases of all test processes."""


@contextmanager
def server_database() -> Generator[str]:
    """Yield the file of a server's database, in memory if there is room.

    Without a file, the server's SQLite database is lost if a client cancels a request while it is read.
    """
    has_room = MEMORY.is_dir() and disk_usage(MEMORY).free > MEMORY_BYTES
    with TemporaryDirectory(prefix="orga-test-", dir=MEMORY if has_room else None) as folder:
        yield f"{folder}/temporal.db"


def temporal_cli() -> Path:
    """Return the executable. Call it outside of a running event loop."""
    return asyncio.run(locate(_print))


def _print(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
