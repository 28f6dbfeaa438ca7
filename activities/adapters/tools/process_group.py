"""A program with limits, in a process group of its own that ends with the call."""

import asyncio
import os
import signal
import sys
from asyncio.subprocess import DEVNULL, STDOUT
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from activities.adapters.tools import limited
from activities.adapters.tools.head_tail import HeadTail

GRACE_S = 2.0
"""From SIGTERM to SIGKILL."""
_DRAIN_S = 1.0
_KEPT_HEAD = 4_000
_KEPT_TAIL = 8_000


@dataclass(frozen=True)
class Limits:
    """Of each process: what it asks for above a limit fails, more processor time kills it."""

    cpu_s: int = 120
    memory_bytes: int = 4_000_000_000
    file_bytes: int = 100_000_000
    open_files: int = 256


@dataclass(frozen=True)
class Ended:
    """How a program ended: `code` is negative for a signal; `output` is its two streams, in order."""

    code: int
    output: str
    timed_out: bool


async def run_group(
    command: Sequence[str], *, cwd: str, environment: Mapping[str, str], timeout_s: float, limits: Limits
) -> Ended:
    """Run `command` (an absolute program and its arguments) with no input; on timeout or cancel end the group.

    A process that moved to a session of its own is out of reach.
    """
    numbers = (limits.cpu_s, limits.memory_bytes, limits.file_bytes, limits.open_files)
    launcher = [sys.executable, "-I", "-S", limited.__file__, *map(str, numbers)]
    loop = asyncio.get_running_loop()
    group, watch = await loop.subprocess_exec(
        Watch, *launcher, *command, cwd=cwd, env=environment, stdin=DEVNULL, stderr=STDOUT, start_new_session=True
    )
    timed_out = False
    try:
        async with asyncio.timeout(timeout_s):
            await watch.exited.wait()
    except TimeoutError:
        timed_out = True
    finally:
        await asyncio.shield(end_group(group, watch, GRACE_S))
    return Ended(group.get_returncode() or 0, watch.output.text(), timed_out)


class Watch(asyncio.SubprocessProtocol):
    """Unlike `Process.wait`, tells the exit of the program from the end of its output, which others may hold open."""

    def __init__(self) -> None:
        self.output = HeadTail(_KEPT_HEAD, _KEPT_TAIL)
        self.exited = asyncio.Event()
        self.drained = asyncio.Event()

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        """Keep a piece of output."""
        self.output.add(data)

    def pipe_connection_lost(self, fd: int, exc: Exception | None) -> None:
        """Note that nobody holds the output open any more."""
        self.drained.set()

    def process_exited(self) -> None:
        """Note that the program has ended."""
        self.exited.set()


async def end_group(group: asyncio.SubprocessTransport, watch: Watch, grace_s: float) -> None:
    """Kill what is left of a group; its first process, while it runs, is asked to end first."""
    if grace_s and not watch.exited.is_set():
        _signal(group, signal.SIGTERM)
        await _at_most(grace_s, watch.exited)
    _signal(group, signal.SIGKILL)
    await watch.exited.wait()
    await _at_most(_DRAIN_S, watch.drained)
    group.close()


async def _at_most(seconds: float, event: asyncio.Event) -> None:
    with suppress(TimeoutError):
        await asyncio.wait_for(event.wait(), seconds)


def _signal(group: asyncio.SubprocessTransport, number: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        os.killpg(group.get_pid(), number)
