"""The sources of a chat's messages if nobody types: one message of the command line, or the lines of a pipe."""

import asyncio
import sys
import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import BinaryIO, Literal, Protocol

from temporalio.client import Client

from orga.client.cli.exit_codes import UsageError
from orga.client.cli.live.watch import Watch
from orga.client.cli.shown.decisions import HeldCall
from orga.client.cli.shown.text import StyledLine
from orga.client.runs.sessions import SessionHandle
from orga.workflows.types.sessions.session_result import TurnResult

MAX_QUEUED_LINES = 100
"""Lines of a pipe that are read before they can be sent."""

MAX_LINE_BYTES = 1_000_000
"""The limit of a line. It is far above that of a message."""


class ChatExit(Exception):
    """The source has no more messages, or the person leaves."""

    def __init__(self, code: int = 0) -> None:
        super().__init__()
        self.code = code
        """The exit code, or 0 to use that of the messages."""


class OneMessage:
    def __init__(self, text: str) -> None:
        self._texts = [text]

    async def read(self, ctrl_c: Callable[[], str]) -> str:
        """Return the message once. Raise ChatExit the second time."""
        if not self._texts:
            raise ChatExit
        return self._texts.pop()

    def has_more(self) -> bool:
        return bool(self._texts)


class PipedLines:
    """A source that returns each line of standard input as a message. It skips empty lines."""

    def __init__(self, stream: BinaryIO | None = None) -> None:
        self._stream = stream or sys.stdin.buffer
        self._read: asyncio.Queue[bytes | OSError] = asyncio.Queue()
        self._free_places = threading.Semaphore(MAX_QUEUED_LINES)
        self._number = 0
        self._unread = 0
        """Lines in the queue that are not empty."""
        self._is_begun = False

    async def read(self, ctrl_c: Callable[[], str]) -> str:
        """Return the next line that is not empty.

        Raises:
            ChatExit: There are no more lines.
            UsageError: The line is not UTF-8 text, or too long.
            OSError: Standard input cannot be read.
        """
        if not self._is_begun:
            self._start_reading(asyncio.get_running_loop().call_soon_threadsafe)
        while line := await self._read.get():
            if isinstance(line, OSError):
                raise line
            self._free_places.release()
            self._number += 1
            self._unread -= bool(line.strip())
            if text := self._decode(line).strip():
                return text
        self._read.put_nowait(b"")
        raise ChatExit

    def has_more(self) -> bool:
        return self._unread > 0

    def _enqueue(self, line: bytes | OSError) -> None:
        self._unread += isinstance(line, bytes) and bool(line.strip())
        self._read.put_nowait(line)

    def _start_reading(self, in_loop: Callable[..., object]) -> None:
        self._is_begun = True

        def read() -> None:
            with suppress(RuntimeError):  # the loop has ended
                try:
                    while line := self._stream.readline(MAX_LINE_BYTES + 1):
                        self._free_places.acquire()
                        in_loop(self._enqueue, line)
                    in_loop(self._enqueue, b"")
                except OSError as error:
                    in_loop(self._enqueue, error)

        # a file cannot be awaited, and the loop would wait for an executor's thread when it ends
        threading.Thread(target=read, daemon=True, name="lines of standard input").start()

    def _decode(self, line: bytes) -> str:
        where = f"line {self._number} of standard input"
        if len(line) > MAX_LINE_BYTES:
            raise UsageError(
                f"{where} is longer than {MAX_LINE_BYTES:,} bytes. Put it into a file that the agent reads"
            )
        try:
            return line.decode("utf-8")
        except UnicodeDecodeError as error:
            raise UsageError(f"{where} is not UTF-8 text (byte {error.start})") from None


InputMode = Literal["typed", "piped", "one"]
"""The origin of messages.

- `typed`: a person types them.
- `piped`: the lines of a pipe. Each is sent after the answer to the previous one.
- `one`: a single message, sent exactly as given, even if it looks like a command.
"""

CtrlCEffect = Literal["interrupts", "clears", "leaves"]
"""The effect of Ctrl-C.

- `interrupts`: ends the current turn.
- `clears`: clears the input, or leaves if nothing is typed.
- `leaves`: leaves at once.
"""


class MessageSource(Protocol):
    async def read(self, ctrl_c: "Callable[[], CtrlCEffect]") -> str:
        """Return the next message, or raise `ChatExit`. A keyboard calls `ctrl_c` on that key."""
        ...

    def has_more(self) -> bool: ...


class ChatView(Protocol):
    """The output of a chat that is not part of the live view."""

    is_busy: bool

    def show_line(self, line: StyledLine, at: datetime) -> None: ...

    def note(self, text: str) -> None: ...

    def lines(self, *lines: str) -> None:
        """Show lines that the person asked for."""
        ...

    def show_turn(self, turn: TurnResult) -> None: ...

    def show_calls(self, calls: Iterable[HeldCall]) -> None: ...

    def shown_call_ids(self) -> frozenset[str]:
        """Return the approval ids of the calls that were shown."""
        ...

    def take_answer(self, text: str) -> bool:
        """Take a line as the answer to a turn's question, and return whether it is one."""
        ...


@dataclass(frozen=True)
class ChatParts:
    client: Client
    session: SessionHandle
    watch: Watch
    source: MessageSource
    shown: ChatView
    manner: InputMode
