"""A process in a group of its own, watched and ended."""

import asyncio
import os
import signal
from contextlib import suppress

from activities.adapters.tools.head_tail import HeadTail

_DRAIN_S = 1.0
_KEPT_HEAD = 4_000
_KEPT_TAIL = 8_000


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
