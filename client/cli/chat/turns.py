"""The turns of a session, folded from its journal: message, calls, answer and end."""

from dataclasses import dataclass, field, replace
from datetime import datetime

from orga.client.cli.shown.narration import Narrator
from orga.client.cli.shown.progress import INDENT, Nesting
from orga.client.cli.shown.text import StyledLine, age, hanging_lines, on_one_line
from orga.client.errors import TurnUnknown
from orga.client.journal import event_types as on
from orga.client.journal.event_types import read_event
from orga.workflows.types.sessions.result import TURN_ENDED, TURN_STARTED
from orga.workflows.types.status import JournalEntry

SHOWN_CHARS = 600
"""The length to which the history cuts messages and answers."""
_HIDDEN_EVENTS = {"Started", TURN_STARTED, TURN_ENDED, "Terminated"}


@dataclass(frozen=True)
class JournalTurn:
    number: int
    said: str
    begun_at: datetime
    done: tuple[StyledLine, ...] = ()
    """A line for each call and each other event of the turn."""
    answer: str = ""
    reason: str = ""
    """The reason of its end; "" while it is not over."""

    @property
    def is_over(self) -> bool:
        return bool(self.reason)


@dataclass
class SessionTurns:
    """All turns of a session. `take` adds the journal's entries in order."""

    recorded: list[JournalTurn] = field(default_factory=list[JournalTurn])
    _narrators: dict[str, Narrator] = field(default_factory=dict[str, Narrator])
    _nesting: Nesting = field(default_factory=Nesting)

    @property
    def under_way(self) -> JournalTurn | None:
        """The current turn, or None between turns."""
        return self.recorded[-1] if self.recorded and not self.recorded[-1].is_over else None

    def ended_turn(self, number: int) -> JournalTurn:
        """Return a turn that is over. Raise TurnUnknown if the journal has none with this number."""
        found = next((each for each in reversed(self.recorded) if each.number == number and each.is_over), None)
        if found is None:
            raise TurnUnknown(f"turn {number} is not in the journal")
        return found

    def take(self, entry: JournalEntry) -> list[StyledLine]:
        """Add the next entry, and return the lines to show for it: one for each call."""
        run, indent = entry.run, INDENT * self._nesting.depth(entry)
        lines = self._narrators.setdefault(run, Narrator()).render(entry)
        if run:
            return self._add_lines([replace(line, text=indent + line.text) for line in lines if _is_shown(entry, line)])
        event = read_event(entry)
        if isinstance(event, on.TurnStarted):
            self.recorded.append(JournalTurn(event.turn, event.message, entry.timestamp))
        elif self.recorded and isinstance(event, on.TurnEnded):
            self.recorded[-1] = replace(self.recorded[-1], reason=event.reason or "ended")
        elif self.recorded and isinstance(event, on.ReasoningComplete):
            answer = "\n".join(action.respond for action in event.actions if action.respond)
            self.recorded[-1] = replace(self.recorded[-1], answer=answer or self.recorded[-1].answer)
        return self._add_lines([line for line in lines if _is_shown(entry, line)])

    def _add_lines(self, lines: list[StyledLine]) -> list[StyledLine]:
        if self.recorded:
            self.recorded[-1] = replace(self.recorded[-1], done=(*self.recorded[-1].done, *lines))
        return lines


def history_lines(turns: list[JournalTurn], now: datetime) -> list[str]:
    """Return the lines that show the turns, each with its age."""
    lines = list[str]()
    for turn in turns:
        lines += ["", f"── turn {turn.number}, {age(turn.begun_at, now)} ago"]
        lines += hanging_lines("› ", _bounded_text(turn.said))
        lines += [f"  {line.text}" for line in turn.done]
        if turn.answer:
            lines += _bounded_lines(turn.answer)
        if turn.reason != "completed":
            lines.append(f"  ({turn.reason or 'in progress'})")
    return lines[1:]


def _bounded_text(text: str) -> str:
    return text if len(text) <= SHOWN_CHARS else f"{text[:SHOWN_CHARS]}…"


def _bounded_lines(text: str) -> list[str]:
    return hanging_lines("", _bounded_text(text))


def _is_shown(entry: JournalEntry, line: StyledLine) -> bool:
    """Return whether a line is shown. A call is shown by its result, and the answer is shown elsewhere in full."""
    if entry.event in _HIDDEN_EVENTS or line.tone == "quiet":
        return False
    return entry.event != "ReasoningComplete" or line.tone == "bad"


def turn_summary(turn: JournalTurn) -> str:
    return f"turn {turn.number}: {on_one_line(turn.said)}"
