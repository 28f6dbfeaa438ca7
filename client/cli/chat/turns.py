"""The turns of a session, folded from its journal: message, calls, answer and end."""

from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import NamedTuple

from orga.client.cli.shown.narration import INDENT, entry_lines
from orga.client.cli.shown.text import StyledLine, age, hanging_lines, on_one_line
from orga.client.errors import TurnUnknown
from orga.client.journal import event_types as on
from orga.client.journal.run_view import Turn, ViewedEntry

SHOWN_CHARS = 600
"""The length to which the history cuts messages and answers."""
_HIDDEN_EVENTS = (on.Started, on.TurnStarted, on.TurnEnded, on.Terminated)


class ShownTurn(NamedTuple):
    turn: Turn
    lines: list[StyledLine]
    """A line for each call and each other event of the turn."""


@dataclass
class SessionTurns:
    """All turns of a session. `take` adds the journal's entries in order."""

    recorded: list[ShownTurn] = field(default_factory=list[ShownTurn])

    @property
    def under_way(self) -> Turn | None:
        """The current turn, or None between turns."""
        return self.recorded[-1].turn if self.recorded and not self.recorded[-1].turn.reason else None

    def ended_turn(self, number: int) -> ShownTurn:
        """Return a turn that is over. Raise TurnUnknown if the journal has none with this number."""
        for shown in reversed(self.recorded):
            if shown.turn.number == number and shown.turn.reason:
                return shown
        raise TurnUnknown(f"turn {number} is not in the journal")

    def take(self, viewed: ViewedEntry) -> list[StyledLine]:
        """Add the next entry, and return the lines to show for it: one for each call."""
        run, indent = viewed.run, INDENT * viewed.run.depth
        if isinstance(viewed.event, on.TurnStarted) and not viewed.entry.run and run.turn:
            self.recorded.append(ShownTurn(run.turn, []))
        shown = (line for line in entry_lines(viewed) if _is_shown(viewed, line))
        lines = [replace(line, text=indent + line.text) for line in shown]
        if self.recorded:
            self.recorded[-1].lines.extend(lines)
        return lines


def history_lines(shown: list[ShownTurn], now: datetime) -> list[str]:
    """Return the lines that show the turns, each with its age."""
    lines = list[str]()
    for turn, done in shown:
        lines += ["", f"── turn {turn.number}, {age(turn.begun_at, now)} ago"]
        lines += hanging_lines("› ", _bounded_text(turn.message))
        lines += [f"  {line.text}" for line in done]
        if turn.answer:
            lines += hanging_lines("", _bounded_text(turn.answer))
        if turn.reason != "completed":
            lines.append(f"  ({turn.reason or 'in progress'})")
    return lines[1:]


def _bounded_text(text: str) -> str:
    return text if len(text) <= SHOWN_CHARS else f"{text[:SHOWN_CHARS]}…"


def _is_shown(viewed: ViewedEntry, line: StyledLine) -> bool:
    """Return whether a line is shown. A call is shown by its result, and the answer is shown elsewhere in full."""
    if isinstance(viewed.event, _HIDDEN_EVENTS) or line.tone == "quiet":
        return False
    return not isinstance(viewed.event, on.ReasoningComplete) or line.tone == "bad"


def turn_summary(turn: Turn) -> str:
    return f"turn {turn.number}: {on_one_line(turn.message)}"
