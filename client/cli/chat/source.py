"""The source of a chat's messages if nobody types: one message of the command line, or the lines of a pipe."""

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
from orga.workflows.types.sessions.result import TurnResult

MAX_QUEUED_LINES = 100
"""Lines of a pipe that are read ahead of what is said."""

MAX_LINE_BYTES = 1_000_000
"""Of one of them: far more than a message may have."""


class ChatExit(Exception):
    """Nothing more will be said here."""

    def __init__(self, code: int = 0) -> None:
        super().__init__()
        self.code = code
        """The exit code, where it is not that of what was said."""


class OneMessage:
    """Says one thing."""

    def __init__(self, text: str) -> None:
        self._texts = [text]

    async def read(self, ctrl_c: Callable[[], str]) -> str:
        """Return it, once.

        Raises:
            Left: It is said.
        """
        if not self._texts:
            raise ChatExit
        return self._texts.pop()

    def has_more(self) -> bool:
        """Whether it is not said yet."""
        return bool(self._texts)


class PipedLines:
    """Each line of standard input is a message; empty ones are left out."""

    def __init__(self, stream: BinaryIO | None = None) -> None:
        self._stream = stream or sys.stdin.buffer
        self._read: asyncio.Queue[bytes | OSError] = asyncio.Queue()
        self._free_places = threading.Semaphore(MAX_QUEUED_LINES)
        self._number = 0
        self._unread = 0
        """Lines that are there and say something."""
        self._is_begun = False

    async def read(self, ctrl_c: Callable[[], str]) -> str:
        """Return the next line that says something.

        Raises:
            Left: There are no more.
            UsageError: It is not UTF-8 text, or too long.
            OSError: They cannot be read.
        """
        if not self._is_begun:
            self._start_reading(asyncio.get_running_loop().call_soon_threadsafe)
        while line := await self._read.get():
            if isinstance(line, OSError):
                raise line
            self._free_places.release()
            self._number += 1
            self._unread -= bool(line.strip())
            if text := self._decoded(line).strip():
                return text
        self._read.put_nowait(b"")
        raise ChatExit

    def has_more(self) -> bool:
        """Whether lines are there that were not read."""
        return self._unread > 0

    def _enqueue(self, line: bytes | OSError) -> None:
        self._unread += isinstance(line, bytes) and bool(line.strip())
        self._read.put_nowait(line)

    def _start_reading(self, in_loop: Callable[..., object]) -> None:
        self._is_begun = True

        def read() -> None:
            with suppress(RuntimeError):  # the loop has ended, and with it who listens
                try:
                    while line := self._stream.readline(MAX_LINE_BYTES + 1):
                        self._free_places.acquire()
                        in_loop(self._enqueue, line)
                    in_loop(self._enqueue, b"")
                except OSError as error:
                    in_loop(self._enqueue, error)

        # a file cannot be awaited, and a thread of the loop would be waited for at the end
        threading.Thread(target=read, daemon=True, name="lines of standard input").start()

    def _decoded(self, line: bytes) -> str:
        where = f"line {self._number} of standard input"
        if len(line) > MAX_LINE_BYTES:
            raise UsageError(
                f"{where} is longer than {MAX_LINE_BYTES:,} bytes; put it into a file that the agent reads"
            )
        try:
            return line.decode("utf-8")
        except UnicodeDecodeError as error:
            raise UsageError(f"{where} is not UTF-8 text (byte {error.start})") from None


InputMode = Literal["typed", "piped", "one"]
"""`piped` are lines, each said when the one before it is answered; `one` is a single message, said as it is."""

CtrlCEffect = Literal["interrupts", "clears", "leaves"]
"""What it does: end the turn under way, clear what is typed (or leave, where nothing is), leave at once."""


class MessageSource(Protocol):
    """Says one thing after the other."""

    async def read(self, ctrl_c: "Callable[[], CtrlCEffect]") -> str:
        """Return the next one, or raise `Left`; where Ctrl-C is a key, it is told of it."""
        ...

    def has_more(self) -> bool:
        """Whether something of a script is left that was not said yet."""
        ...


class ChatView(Protocol):
    """Shows what a chat shows beside the live view."""

    is_busy: bool

    def told(self, line: StyledLine, at: datetime) -> None:
        """Show a line of a turn."""
        ...

    def note(self, text: str) -> None:
        """Show a remark."""
        ...

    def lines(self, *lines: str) -> None:
        """Show what was asked for."""
        ...

    def ended(self, turn: TurnResult) -> None:
        """Show the answer of a turn, or why it has none."""
        ...

    def tell_calls(self, calls: Iterable[HeldCall]) -> None:
        """Show those calls that wait for a yes and were not shown yet."""
        ...

    def calls_told(self) -> frozenset[str]:
        """Return the approval ids of the calls that were shown."""
        ...

    def answers(self, text: str) -> bool:
        """Take a line as the answer to what a turn asks, if it asks something."""
        ...


@dataclass(frozen=True)
class ChatParts:
    """What a chat is between."""

    client: Client
    session: SessionHandle
    watch: Watch
    source: MessageSource
    shown: ChatView
    manner: InputMode
