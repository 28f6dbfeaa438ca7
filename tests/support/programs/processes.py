"""Checks on processes: their ids, and the files that this process has open."""

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from tests.support.hold import wait_until


def is_alive(pid: int) -> bool:
    """Return whether a process exists. A zombie counts."""
    return Path(f"/proc/{pid}").exists()


def is_running(pid: int) -> bool:
    """Return whether a process still runs. A zombie does not count."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


async def wait_until_ended(pids: Sequence[int]) -> None:
    """Wait until none of these processes runs any more. A signal that kills takes effect a moment later."""

    async def are_ended() -> bool:
        return not any(map(is_running, pids))

    await wait_until(are_ended)


LOOKS = 10
"""How many times in a row the number has to be the same."""


async def open_files() -> int:
    """Return the number of open file descriptors, once it is stable.

    TCP connections do not count, because those to the Temporal server are replaced at any time.
    """
    counts = [_open_files()]
    while len(counts) < LOOKS or len({*counts[-LOOKS:]}) > 1:
        await asyncio.sleep(0.02)
        counts.append(_open_files())
    return counts[-1]


def _open_files() -> int:
    tables = [Path(f"/proc/self/net/{name}").read_text().splitlines()[1:] for name in ("tcp", "tcp6")]
    connections = {f"socket:[{line.split()[9]}]" for table in tables for line in table}
    return sum(target not in connections for target in _open_targets())


def _open_targets() -> Iterator[str]:
    for descriptor in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):  # closed meanwhile
            yield str(descriptor.readlink())


async def wait_for_pids(path: Path) -> list[int]:
    """Wait for the file that a tool writes at its start, and return the process ids in it."""

    async def is_there() -> bool:
        return await asyncio.to_thread(path.exists)

    await wait_until(is_there)
    return [int(pid) for pid in path.read_text().split()]
