"""The worker's end of a supervisor: starts it, gives its order, takes its report, and sees to it that it ends."""

import asyncio
import os
import socket
from asyncio.subprocess import DEVNULL, PIPE, STDOUT
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from orga.activities.adapters.process_channel import process_channel
from orga.activities.adapters.process_streams import ProcessStreams
from orga.child import held_program

GRACE_S = 2.0
"""From SIGTERM to SIGKILL."""
_ENDED_WITHIN_S = GRACE_S + 1.8
"""Once it is told to end; a run waits little longer for a call that was cancelled."""
_SUPERVISOR = "orga.activities.adapters.sandbox.supervisor"


@dataclass(frozen=True)
class Report:
    """How a command ended."""

    came: str
    """What ended it: its own `end`, an `order`, or too many `processes`."""
    code: int | None
    """Negative for a signal; None where it did not end."""
    cpu_s: float


async def supervised(
    order: bytes, streams: ProcessStreams, *, cwd: Path, stdin: bytes, timeout_s: float
) -> Report | None:
    """Return the report, or None where the supervisor ended without one; on timeout or cancel end the command."""
    async with process_channel() as channel:
        process = await _start(channel.theirs, streams, cwd, stdin)
        report = asyncio.create_task(_report(channel.reader))
        try:
            channel.writer.write(order)
            await asyncio.wait((report,), timeout=timeout_s)
        finally:
            await asyncio.shield(_end(channel.writer, process, streams))
        return await report


async def _start(
    theirs: socket.socket, streams: ProcessStreams, cwd: Path, stdin: bytes
) -> asyncio.SubprocessTransport:
    number = theirs.fileno()
    program = held_program(_SUPERVISOR, str(number), site=False)
    with theirs:
        process, _ = await asyncio.get_running_loop().subprocess_exec(
            lambda: streams,
            *program.argv,
            cwd=cwd,
            env={},
            stdin=PIPE if stdin else DEVNULL,
            stderr=STDOUT if streams.merged else PIPE,
            pass_fds=(number, program.number),
            start_new_session=True,
        )
    if stdin:
        _feed(process, stdin)
    return process


def _feed(process: asyncio.SubprocessTransport, stdin: bytes) -> None:
    pipe = process.get_pipe_transport(0)
    assert isinstance(pipe, asyncio.WriteTransport)
    pipe.write(stdin)
    pipe.write_eof()


async def _report(reader: asyncio.StreamReader) -> Report | None:
    try:
        words = (await reader.read()).decode().split()
    except OSError:
        words = []
    if not words:
        return None
    came, status, cpu_s = words
    return Report(came, None if status == "None" else os.waitstatus_to_exitcode(int(status)), float(cpu_s))


async def _end(writer: asyncio.StreamWriter, process: asyncio.SubprocessTransport, streams: ProcessStreams) -> None:
    with suppress(OSError):
        writer.write_eof()
    if not await streams.has_exited(_ENDED_WITHIN_S):
        process.kill()
    await streams.close(process)
