"""Runs a Python function in its own process, which is killed with all that it started when the call is over."""

import asyncio
import json
import logging
import signal
import socket
import struct
from asyncio.subprocess import DEVNULL, STDOUT
from base64 import b64decode
from contextlib import suppress
from dataclasses import dataclass, fields
from typing import Any

from orga.activities.adapters.process_streams import ProcessChannel, ProcessStreams, end_group, process_channel
from orga.activities.media import Media, output_with_media
from orga.activities.ports import ToolContext, ToolError
from orga.child import held_program
from orga.workflows.types.tool_calls.tools import PROCESS_CRASHED, ToolOutput

MAX_BYTES = 16_000_000

_LENGTH = struct.Struct("!I")


def pack_message(message: dict[str, Any]) -> bytes:
    """Raise ValueError if it is longer than `MAX_BYTES`."""
    body = json.dumps(message).encode()
    if len(body) > MAX_BYTES:
        raise ValueError(f"{len(body):,} bytes are over the limit of {MAX_BYTES:,}")
    return _LENGTH.pack(len(body)) + body


async def read_child_message(stream: asyncio.StreamReader) -> dict[str, Any]:
    """Raise EOFError if the stream has ended."""
    (length,) = _LENGTH.unpack(await stream.readexactly(_LENGTH.size))
    if length > MAX_BYTES:
        raise EOFError("what comes is no message")
    return json.loads(await stream.readexactly(length))


def receive_message(channel: socket.socket) -> dict[str, Any]:
    with channel.makefile("rb") as stream:
        (length,) = _LENGTH.unpack(stream.read(_LENGTH.size))
        return json.loads(stream.read(length))


GRACE_S = 0.2
"""Seconds from SIGTERM to SIGKILL: few, because a call that is cut off has to report it within its time limit."""

_OUTPUT_WAIT_S = 1.0
"""Seconds to wait for an answer that was sent just before the process ended."""

_OUTPUT_HEAD_BYTES = 4_000
_OUTPUT_TAIL_BYTES = 8_000

_CHILD = "orga.activities.adapters.tools.function_child"

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class FunctionProcess:
    """A function by its import path. Every call gets a new process, without anything from earlier calls."""

    name: str
    path: str

    async def run(self, arguments: dict[str, Any], context: ToolContext) -> ToolOutput:
        """Return the function's result. Raise its ToolError, or ProcessCrashed if it ended without a result."""
        facts = {f.name: getattr(context, f.name) for f in fields(context) if f.name != "heartbeat"}
        request = pack_message({"name": self.name, "path": self.path, "arguments": arguments, "context": facts})
        answer: dict[str, Any] | None = None
        async with process_channel() as channel:
            group, streams = await self._start(channel.theirs)
            try:
                answer = await _wait_for_answer(channel, request, streams, context)
            finally:
                await asyncio.shield(end_group(group, streams, 0 if answer else GRACE_S))
                if output := streams.stdout.text():
                    _log.info("%s wrote:\n%s", self.name, output)
        if answer is None:
            text = f"{self.name} ended its process without a result: {_exit_text(group.get_returncode())}"
            raise ToolError(text, kind=PROCESS_CRASHED, retryable=True)
        return _call_output(answer)

    async def _start(self, theirs: socket.socket) -> tuple[asyncio.SubprocessTransport, ProcessStreams]:
        number = theirs.fileno()
        program = held_program(_CHILD, str(number), self.name)
        with theirs:
            return await asyncio.get_running_loop().subprocess_exec(
                lambda: ProcessStreams(_OUTPUT_HEAD_BYTES, _OUTPUT_TAIL_BYTES, merged=True),
                *program.argv,
                stdin=DEVNULL,
                stderr=STDOUT,
                pass_fds=(number, program.number),
                start_new_session=True,
            )


async def _wait_for_answer(
    channel: ProcessChannel, request: bytes, streams: ProcessStreams, context: ToolContext
) -> dict[str, Any] | None:
    """Return the answer, or None if the process ended, or closed its socket, without one."""
    talk = asyncio.create_task(_exchange_messages(channel, request, context))
    exited = asyncio.create_task(streams.exited.wait())
    try:
        await asyncio.wait((talk, exited), return_when=asyncio.FIRST_COMPLETED)
        await asyncio.wait((talk,), timeout=_OUTPUT_WAIT_S)
        return talk.result() if talk.done() else None
    finally:
        talk.cancel()
        exited.cancel()


async def _exchange_messages(channel: ProcessChannel, request: bytes, context: ToolContext) -> dict[str, Any] | None:
    try:
        channel.writer.write(request)
        await channel.writer.drain()
        while "note" in (message := await read_child_message(channel.reader)):
            context.heartbeat(message["note"])
    except (EOFError, OSError):
        return None
    return message


def _call_output(answer: dict[str, Any]) -> ToolOutput:
    if "error" in answer:
        error = dict(answer["error"])
        raise ToolError(error.pop("message"), **error)
    media = (Media(b64decode(data), name) for name, data in answer["media"])
    return output_with_media(answer["content"], media)


def _exit_text(code: int | None) -> str:
    if code is None or code >= 0:
        return f"exit code {code}"
    with suppress(ValueError):
        return f"killed by {signal.Signals(-code).name}"
    return f"killed by signal {-code}"
