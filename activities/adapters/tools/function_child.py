"""Program of a process that calls a Python function once and sends the result over a socket.

The function's output goes elsewhere, so that it cannot be taken for an answer. The process ends with its worker, when
the other end of the socket is closed, however the worker died.
"""

import faulthandler
import os
import select
import signal
import socket
import sys
import threading
from base64 import b64encode
from types import FrameType
from typing import Any

from orga.activities.adapters.tools.function_process import pack_message, receive_message
from orga.activities.adapters.tools.python_function import load_function, raising_tool_errors
from orga.activities.ports import LoadedMedia, ToolContext, ToolError
from orga.workflows.types.tool_calls.tools import ToolOutput

_NOTE_INTERVAL_S = 0.2
_MAX_NOTE_CHARS = 4_000


class _WorkerChannel:
    """The channel to the worker. Of many notes only the last one is sent, so that a function cannot flood it."""

    def __init__(self, channel: socket.socket) -> None:
        self._channel = channel
        self._sending = threading.Lock()
        self._note: str | None = None

    def note(self, text: str) -> None:
        self._note = str(text)[:_MAX_NOTE_CHARS]

    def send_notes(self) -> None:
        """Send notes until the worker has gone. Then end this process and all that it started."""
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
                self._channel.sendall(pack_message({"note": note}))


def main() -> None:
    """Read the call from the socket whose number is the first argument, and make it."""
    faulthandler.enable()
    channel = socket.socket(fileno=int(sys.argv[1]))
    channel.set_inheritable(False)
    line = _WorkerChannel(channel)
    request = receive_message(channel)
    threading.Thread(target=line.send_notes, daemon=True).start()
    signal.signal(signal.SIGTERM, _unwind)
    line.send_answer(_answer_message(request, line))


def _answer_message(request: dict[str, Any], line: _WorkerChannel) -> bytes:
    try:
        output = _call_function(request, line)
    except ToolError as error:
        return _failure_message(error)
    try:
        media = [[part.name, b64encode(part.data).decode()] for part in output.media if isinstance(part, LoadedMedia)]
        return pack_message({"content": output.content, "media": media})
    except ValueError as error:
        message = f"the result of {request['name']} is too large: {error}; have it return less"
        return _failure_message(ToolError(message, kind="InvalidResult", acted="yes"))


def _failure_message(error: ToolError) -> bytes:
    fields = {"message": str(error), "kind": error.kind, "retryable": error.retryable, "acted": error.acted}
    return pack_message({"error": fields})


def _call_function(request: dict[str, Any], line: _WorkerChannel) -> ToolOutput:
    with raising_tool_errors(request["name"]):
        function = load_function(request["path"])
        return function.call_here(request["arguments"], ToolContext(**request["context"], heartbeat=line.note))


def _unwind(number: int, frame: FrameType | None) -> None:
    """Unwind the function, so that its `finally` blocks run. A function that is too slow is killed."""
    sys.exit(128 + number)
