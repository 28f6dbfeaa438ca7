"""Helpers for child processes: bounded outputs, limits, the end of a process and its group, and a socket to a child."""

import asyncio
import os
import resource
import signal
import socket
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass

from orga.child import held_program


class HeadTail:
    """Collects pieces. It keeps the first and the last bytes and counts the bytes between them."""

    def __init__(self, head: int, tail: int) -> None:
        self._room = head
        self._max_tail = tail
        self._head = bytearray()
        self._tail = bytearray()
        self._left_out = 0

    def add(self, piece: bytes) -> None:
        fits = self._room - len(self._head)
        self._head += piece[:fits]
        self._tail += piece[fits:]
        if len(self._tail) > self._max_tail:
            over = len(self._tail) - self._max_tail
            self._left_out += over
            del self._tail[:over]

    @property
    def is_cut(self) -> bool:
        """True if bytes are missing."""
        return self._left_out > 0

    def data(self) -> bytes:
        """Return the kept bytes. A mark replaces the missing ones, unless no tail is kept."""
        mark = b"\n[... %s bytes left out ...]\n" % f"{self._left_out:,}".encode()
        return bytes(self._head + (mark if self.is_cut and self._max_tail else b"") + self._tail)

    def text(self) -> str:
        return self.data().decode(errors="replace")


_DRAIN_S = 1.0
"""Seconds to read the rest of the outputs of a process that has ended."""


class ProcessStreams(asyncio.SubprocessProtocol):
    """The outputs and the exit of a process. `Process.communicate` also waits for other processes with its pipes."""

    def __init__(self, head: int, tail: int, *, merged: bool) -> None:
        """Keep a head and a tail of each output. `merged` makes both outputs one."""
        self.stdout = HeadTail(head, tail)
        self.stderr = HeadTail(head, tail)
        self.merged = merged
        self.exited = asyncio.Event()
        self._drained = asyncio.Event()
        self._open = {1} if merged else {1, 2}

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        (self.stdout if fd == 1 else self.stderr).add(data)

    def pipe_connection_lost(self, fd: int, exc: Exception | None) -> None:
        """Note that an output is closed in all processes."""
        self._open.discard(fd)
        if not self._open:
            self._drained.set()

    def process_exited(self) -> None:
        self.exited.set()

    async def has_exited(self, within_s: float) -> bool:
        """Wait at most `within_s` seconds for the end of the process, and return whether it has ended."""
        await _wait_at_most(within_s, self.exited)
        return self.exited.is_set()

    async def close(self, process: asyncio.SubprocessTransport) -> None:
        """Wait for the end of the process, read the rest of its outputs, and close them even if others hold them."""
        await self.exited.wait()
        await _wait_at_most(_DRAIN_S, self._drained)
        process.close()


async def _wait_at_most(seconds: float, event: asyncio.Event) -> None:
    with suppress(TimeoutError):
        await asyncio.wait_for(event.wait(), seconds)


async def end_group(group: asyncio.SubprocessTransport, streams: ProcessStreams, grace_s: float) -> None:
    """Ask the group's first process to end, if it runs, and then kill the rest of the group."""
    if grace_s and not streams.exited.is_set():
        signal_group(group.get_pid(), signal.SIGTERM)
        await streams.has_exited(grace_s)
    signal_group(group.get_pid(), signal.SIGKILL)
    await streams.close(group)


def signal_group(group: int, number: signal.Signals) -> None:
    """Send a signal if any process of the group is left."""
    with suppress(ProcessLookupError, PermissionError):  # macOS raises PermissionError if the group has ended
        os.killpg(group, number)


@dataclass(frozen=True)
class ProcessChannel:
    """Our end of a socket between two processes, and the end for the other one."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    theirs: socket.socket


@asynccontextmanager
async def process_channel() -> AsyncGenerator[ProcessChannel]:
    """Open both ends. On exit our end is aborted, without waiting for unsent data."""
    ours, theirs = socket.socketpair()
    with theirs:
        reader, writer = await asyncio.open_connection(sock=ours)
        try:
            yield ProcessChannel(reader, writer, theirs)
        finally:
            writer.transport.abort()


def limit_this_process(memory_bytes: int, work_s: float | None = None) -> None:
    """Limit memory and processor time of a child that reads hostile data. After `work_s` seconds, a signal ends it."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_AS, (memory_bytes, memory_bytes))
    if work_s is not None:
        signal.setitimer(signal.ITIMER_PROF, work_s)  # its signal ends a process that does not handle it


async def child_output(module: str, data: bytes, timeout_s: float | None = None) -> bytes:
    """Run `main` of one of our modules in a process, with `data` as its input, and return its output.

    The output is empty if the process fails, its limits end it, or it takes longer than `timeout_s`. The process
    has an empty environment, and ends with this call.
    """
    program = held_program(module)
    process = await asyncio.create_subprocess_exec(
        *program.argv, stdin=PIPE, stdout=PIPE, stderr=DEVNULL, env={}, pass_fds=(program.number,)
    )
    output = b""
    try:
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                output, _ = await process.communicate(data)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    return output if process.returncode == 0 else b""
