"""Runs each call of a Python function in a process of its own. After the call, the process and its children are killed.

As a program, this module makes one call and sends the result over a socket. The function's own output goes to a pipe,
so that it cannot be taken for an answer. If the worker dies, the socket is closed, and the process ends itself.
"""

import asyncio
import faulthandler
import json
import logging
import os
import select
import signal
import socket
import struct
import sys
import threading
from asyncio.subprocess import DEVNULL, STDOUT
from base64 import b64decode, b64encode
from contextlib import suppress
from dataclasses import dataclass, fields
from types import FrameType
from typing import Any

from orga.activities.adapters.process_streams import ProcessChannel, ProcessStreams, end_group, process_channel
from orga.activities.media import Media, output_with_media
from orga.activities.ports import LoadedMedia, ToolContext, ToolError
from orga.child import held_program
from orga.workflows.types.tool_calls.tools import PROCESS_CRASHED, ToolOutput

MAX_BYTES = 16_000_000
"""Bytes of one message."""

_LENGTH = struct.Struct("!I")


def _pack_message(message: dict[str, Any]) -> bytes:
    """Return the message as bytes. Raise ValueError if they are more than `MAX_BYTES`."""
    body = json.dumps(message).encode()
    if len(body) > MAX_BYTES:
        raise ValueError(f"{len(body):,} bytes are over the limit of {MAX_BYTES:,}")
    return _LENGTH.pack(len(body)) + body


GRACE_S = 0.2
"""Seconds from SIGTERM to SIGKILL. They are few, because a call at its time limit must still report its end in time."""

_LATE_ANSWER_S = 1.0
"""Seconds after the end of the process to read an answer that it had sent."""

_OUTPUT_HEAD_BYTES = 4_000
_OUTPUT_TAIL_BYTES = 8_000

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class FunctionProcess:
    """A function by its import path. Each call gets a new process, so that no state is left from earlier calls."""

    name: str
    path: str

    async def run(self, arguments: dict[str, Any], context: ToolContext) -> ToolOutput:
        """Return the function's result. Raise its ToolError, or ToolError (PROCESS_CRASHED) if there was no result."""
        facts = {f.name: getattr(context, f.name) for f in fields(context) if f.name != "heartbeat"}
        request = _pack_message({"name": self.name, "path": self.path, "arguments": arguments, "context": facts})
        answer: dict[str, Any] | None = None
        async with process_channel() as channel:
            group, streams = await self._start(channel.theirs)
            try:
                answer = await _wait_for_answer(channel, request, streams, context)
            finally:
                grace_s = 0 if answer else GRACE_S  # after an answer the function has nothing left to clean up
                await asyncio.shield(end_group(group, streams, grace_s))
                if output := streams.stdout.text():
                    _log.info("%s wrote:\n%s", self.name, output)
        if answer is None:
            text = f"{self.name} ended its process without a result: {_exit_text(group.get_returncode())}"
            raise ToolError(text, kind=PROCESS_CRASHED, retryable=True)
        return _call_output(answer)

    async def _start(self, theirs: socket.socket) -> tuple[asyncio.SubprocessTransport, ProcessStreams]:
        descriptor = theirs.fileno()
        program = held_program(__name__, str(descriptor), self.name)
        with theirs:
            return await asyncio.get_running_loop().subprocess_exec(
                lambda: ProcessStreams(_OUTPUT_HEAD_BYTES, _OUTPUT_TAIL_BYTES, merged=True),
                *program.argv,
                stdin=DEVNULL,
                stderr=STDOUT,
                pass_fds=(descriptor, program.number),
                start_new_session=True,
            )


async def _wait_for_answer(
    channel: ProcessChannel, request: bytes, streams: ProcessStreams, context: ToolContext
) -> dict[str, Any] | None:
    """Return the answer, or None if the process ends or closes its socket without an answer."""
    exchange = asyncio.create_task(_exchange_messages(channel, request, context))
    exited = asyncio.create_task(streams.exited.wait())
    try:
        await asyncio.wait((exchange, exited), return_when=asyncio.FIRST_COMPLETED)
        await asyncio.wait((exchange,), timeout=_LATE_ANSWER_S)
        return exchange.result() if exchange.done() else None
    finally:
        exchange.cancel()
        exited.cancel()


async def _exchange_messages(channel: ProcessChannel, request: bytes, context: ToolContext) -> dict[str, Any] | None:
    try:
        channel.writer.write(request)
        await channel.writer.drain()
        while "note" in (message := await _read_message(channel.reader)):
            context.heartbeat(message["note"])
    except (EOFError, OSError):
        return None
    return message


async def _read_message(stream: asyncio.StreamReader) -> dict[str, Any]:
    """Return the next message. Raise EOFError if the stream has ended, or contains no message."""
    (length,) = _LENGTH.unpack(await stream.readexactly(_LENGTH.size))
    if length > MAX_BYTES:
        raise EOFError("the stream contains no message")
    return json.loads(await stream.readexactly(length))


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


_NOTE_INTERVAL_S = 0.2
_MAX_NOTE_CHARS = 4_000


class _WorkerChannel:
    """The channel to the worker. It sends only the latest note of each interval, so that no function can flood it."""

    def __init__(self, channel: socket.socket) -> None:
        self._channel = channel
        self._sending = threading.Lock()
        self._note: str | None = None

    def note(self, text: str) -> None:
        self._note = str(text)[:_MAX_NOTE_CHARS]

    def send_notes(self) -> None:
        """Send notes until the worker closes the channel. Then kill this process and all processes that it started."""
        watched = select.poll()
        watched.register(self._channel, select.POLLIN)
        while not watched.poll(_NOTE_INTERVAL_S * 1_000):
            self._send_note()
        os.killpg(0, signal.SIGKILL)

    def send_answer(self, message: bytes) -> None:
        self._send_note()
        with self._sending:
            self._channel.sendall(message)

    def _send_note(self) -> None:
        with self._sending:
            note, self._note = self._note, None
            if note is not None:
                self._channel.sendall(_pack_message({"note": note}))


def main() -> None:
    """Read a call from the socket whose descriptor is the first argument, make the call, and send the answer."""
    faulthandler.enable()
    channel = socket.socket(fileno=int(sys.argv[1]))
    channel.set_inheritable(False)
    worker = _WorkerChannel(channel)
    with channel.makefile("rb") as stream:
        (length,) = _LENGTH.unpack(stream.read(_LENGTH.size))
        request = json.loads(stream.read(length))
    threading.Thread(target=worker.send_notes, daemon=True).start()
    signal.signal(signal.SIGTERM, _unwind)
    worker.send_answer(_answer_message(request, worker))


def _answer_message(request: dict[str, Any], worker: _WorkerChannel) -> bytes:
    from orga.activities.adapters.tools.python_function import load_function, raising_tool_errors

    try:
        with raising_tool_errors(request["name"]):
            function = load_function(request["path"])
            context = ToolContext(**request["context"], heartbeat=worker.note)
            output = function.call_here(request["arguments"], context)
    except ToolError as error:
        return _failure_message(error)
    try:
        media = [[part.name, b64encode(part.data).decode()] for part in output.media if isinstance(part, LoadedMedia)]
        return _pack_message({"content": output.content, "media": media})
    except ValueError as error:
        message = f"the result of {request['name']} is too large: {error}; have it return less"
        return _failure_message(ToolError(message, kind="InvalidResult", acted="yes"))


def _failure_message(error: ToolError) -> bytes:
    failure = {"message": str(error), "kind": error.kind, "retryable": error.retryable, "acted": error.acted}
    return _pack_message({"error": failure})


def _unwind(number: int, frame: FrameType | None) -> None:
    """Raise SystemExit in the function, so that its `finally` blocks run. If that takes too long, it is killed."""
    sys.exit(128 + number)
