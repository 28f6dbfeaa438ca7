"""What a chat is between: where messages come from, where what comes of them is shown, in which manner."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Literal, Protocol

from temporalio.client import Client

from orga.client.cli.held_calls import Call
from orga.client.cli.line import Line
from orga.client.cli.watching import Watch
from orga.client.runs.sessions import SessionHandle
from orga.workflows.types.sessions.result import TurnResult

Manner = Literal["typed", "piped", "one"]
"""`piped` are lines, each said when the one before it is answered; `one` is a single message, said as it is."""

CtrlC = Literal["interrupts", "clears", "leaves"]
"""What it does: end the turn under way, clear what is typed (or leave, where nothing is), leave at once."""


class Source(Protocol):
    """Says one thing after the other."""

    async def read(self, ctrl_c: "Callable[[], CtrlC]") -> str:
        """Return the next one, or raise `Left`; where Ctrl-C is a key, it is told of it."""
        ...

    def has_more(self) -> bool:
        """Whether something of a script is left that was not said yet."""
        ...


class Shown(Protocol):
    """Shows what a chat shows beside the live view."""

    is_busy: bool

    def told(self, line: Line, at: datetime) -> None:
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

    def tell_calls(self, calls: Iterable[Call]) -> None:
        """Show those calls that wait for a yes and were not shown yet."""
        ...

    def calls_told(self) -> frozenset[str]:
        """Return the approval ids of the calls that were shown."""
        ...

    def answers(self, text: str) -> bool:
        """Take a line as the answer to what a turn asks, if it asks something."""
        ...


@dataclass(frozen=True)
class Parts:
    """What a chat is between."""

    client: Client
    session: SessionHandle
    watch: Watch
    source: Source
    shown: Shown
    manner: Manner
