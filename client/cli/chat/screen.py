"""What a chat looks like: in a terminal lines that stay, under them the line to type in, under that the live block."""

import asyncio
import time
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import NamedTuple

from rich.console import Console
from rich.text import Text

from orga.client.cli.answer_line import label
from orga.client.cli.chat.keyboard import Keyboard
from orga.client.cli.chat.turn_shown import TurnShown
from orga.client.cli.held_calls import Call, held_calls, in_words
from orga.client.cli.line import Line
from orga.client.cli.live_screen import STYLES, block
from orga.client.cli.output import alarm, is_hushed
from orga.client.cli.progress import Progress
from orga.client.cli.screen import Screen
from orga.client.server.home import prepared_home
from orga.workflows.types.questions import ShownQuestion
from orga.workflows.types.sessions.result import TurnResult
from orga.workflows.types.text import as_line

PROMPT = "› "


class _Asked(NamedTuple):
    """A question that is shown."""

    wait: ShownQuestion
    answer: asyncio.Future[str]
    at: float
    """Of `time.monotonic()`."""


class ChatScreen:
    """Shows a session above the line in which one types; questions of a turn are answered in that same line."""

    def __init__(self, turn_shown: TurnShown) -> None:
        self._turn_shown = turn_shown
        self._console = Console(stderr=True, markup=False, highlight=False, emoji=False)
        self.keyboard = Keyboard(prepared_home().typed, self._label, self._drawn)
        self.is_busy = False
        """Whether a turn is under way, and with it something to be drawn."""
        self._standing = Progress()
        self._asked: _Asked | None = None
        self._told = set[str]()

    def told(self, line: Line, at: datetime) -> None:
        """Print the line above."""
        if not is_hushed():
            self._print(Text(as_line(line.text), style=STYLES[line.tone]))

    def frame(self, progress: Progress) -> None:
        """Keep it for the next drawing; a call that waits for a yes is told once."""
        self._standing = progress
        for wait in progress.waiting:
            self.tell_calls(held_calls(wait))

    def tell_calls(self, calls: Iterable[Call]) -> None:
        """Print those that were not told yet."""
        for call in calls:
            if str(call["id"]) not in self._told:
                self._told.add(str(call["id"]))
                self.lines(f"? waits for your yes: {in_words(call)} → /approve or /deny")

    def calls_told(self) -> frozenset[str]:
        """Return the approval ids of the calls that were told."""
        return frozenset(self._told)

    def note(self, text: str) -> None:
        """Print the remark above."""
        if not is_hushed():
            self._print(Text(as_line(text), style="dim"))

    def lines(self, *lines: str) -> None:
        """Print the lines above."""
        self.keyboard.above(lambda: alarm(*lines))

    def ended(self, turn: TurnResult) -> None:
        """Print the answer above."""
        self.is_busy = False
        self.keyboard.above(lambda: self._turn_shown.show(turn))

    async def typed(self, wait: ShownQuestion) -> str:
        """Return what is typed next; "" for an empty line, which leaves the question for later."""
        answer: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._asked = _Asked(wait, answer, time.monotonic())
        self._print(Text(as_line(f"? asks: {wait.question}"), style=STYLES["person"]))
        try:
            return await answer
        finally:
            self._asked = None

    def answers(self, text: str) -> bool:
        """Take a line as the answer to what is asked; return whether it is.

        One that was begun before anything was asked is none: who types it has not seen the question yet.
        """
        if self._asked is None or self._asked.answer.done() or self.keyboard.was_begun_before(self._asked.at):
            return False
        self._asked.answer.set_result(text)
        return True

    def close(self) -> None:
        """All that was written stays."""

    def _label(self) -> str:
        if self._asked is None or self.keyboard.was_begun_before(self._asked.at):
            return PROMPT
        return label(self._asked.wait)

    def _print(self, text: Text) -> None:
        self.keyboard.above(lambda: self._console.print(text))

    def _drawn(self) -> str:
        if not self.is_busy:
            return ""
        with self._console.capture() as captured:
            self._console.print(block(self._standing, datetime.now(UTC)))
        return captured.get().rstrip("\n")


class PlainChat:
    """Shows a session that a script talks in, on a screen that nobody types at."""

    def __init__(self, screen: Screen, turn_shown: TurnShown) -> None:
        self._screen = screen
        self._turn_shown = turn_shown
        self.is_busy = False

    def told(self, line: Line, at: datetime) -> None:
        """Write the line."""
        self._screen.told(line, at)

    def note(self, text: str) -> None:
        """Write the remark."""
        self._screen.note(text)

    def lines(self, *lines: str) -> None:
        """Write the lines."""
        alarm(*lines)

    def ended(self, turn: TurnResult) -> None:
        """Write the answer."""
        self._turn_shown.show(turn)

    def tell_calls(self, calls: Iterable[Call]) -> None:
        """Tell of none: nobody is here who could decide."""

    def calls_told(self) -> frozenset[str]:
        """Return that none was told."""
        return frozenset()

    def answers(self, text: str) -> bool:
        """Return that nothing is asked here: the next line of a script is the next message."""
        return False
