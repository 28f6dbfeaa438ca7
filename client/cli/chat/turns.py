"""The turns of a session as its journal tells them: what was said, what was done, how it ended."""

from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from orga.client.cli.shown.narration import Narrator
from orga.client.cli.shown.progress import INDENT, Nesting, delegated_run_id
from orga.client.cli.shown.text import StyledLine, age, hanging_lines, on_one_line
from orga.client.errors import TurnUnknown
from orga.workflows.types.sessions.result import TURN_ENDED, TURN_STARTED
from orga.workflows.types.status import JournalEntry

SHOWN_CHARS = 600
"""Of what was said and answered, in the history."""
_HIDDEN_EVENTS = {"Started", TURN_STARTED, TURN_ENDED, "Terminated"}


@dataclass(frozen=True)
class JournalTurn:
    """One turn."""

    number: int
    said: str
    begun_at: datetime
    done: tuple[StyledLine, ...] = ()
    """A line for each call, and for what else became of the turn."""
    answer: str = ""
    reason: str = ""
    """How it ended; "" while it is under way."""

    @property
    def is_over(self) -> bool:
        """Whether it has ended."""
        return bool(self.reason)


@dataclass
class SessionTurns:
    """All turns, taken in from the journal entry by entry."""

    told: list[JournalTurn] = field(default_factory=list[JournalTurn])
    _narrators: dict[str, Narrator] = field(default_factory=dict[str, Narrator])
    _nesting: Nesting = field(default_factory=Nesting)

    @property
    def under_way(self) -> JournalTurn | None:
        """The turn that is carried out now."""
        return self.told[-1] if self.told and not self.told[-1].is_over else None

    def ended(self, number: int) -> JournalTurn:
        """Return a turn that is over.

        Raises:
            TurnUnknown: The journal tells of none by this number.
        """
        found = next((each for each in reversed(self.told) if each.number == number and each.is_over), None)
        if found is None:
            raise TurnUnknown(f"turn {number} is not in the journal")
        return found

    def take(self, entry: JournalEntry) -> list[StyledLine]:
        """Take in the next entry and return what is to be shown of it: calls folded, each on one line."""
        run, indent = delegated_run_id(entry), INDENT * self._nesting.depth(entry)
        lines = self._narrators.setdefault(run, Narrator()).tell(entry)
        if run:
            return self._add_lines([replace(line, text=indent + line.text) for line in lines if _is_shown(entry, line)])
        if entry.event == TURN_STARTED:
            said = str(entry.data.get("message", ""))
            self.told.append(JournalTurn(int(entry.data.get("turn", 0)), said, entry.timestamp))
        elif self.told and entry.event == TURN_ENDED:
            self.told[-1] = replace(self.told[-1], reason=str(entry.data.get("reason") or "ended"))
        elif self.told and entry.event == "ReasoningComplete":
            self.told[-1] = replace(self.told[-1], answer=_answer_text(entry) or self.told[-1].answer)
        return self._add_lines([line for line in lines if _is_shown(entry, line)])

    def _add_lines(self, lines: list[StyledLine]) -> list[StyledLine]:
        if self.told:
            self.told[-1] = replace(self.told[-1], done=(*self.told[-1].done, *lines))
        return lines


def history_lines(turns: list[JournalTurn], now: datetime) -> list[str]:
    """Return the turns as people read them, with how long ago each was begun."""
    lines = list[str]()
    for turn in turns:
        lines += ["", f"── turn {turn.number}, {age(turn.begun_at, now)} ago"]
        lines += hanging_lines("› ", _bounded_text(turn.said))
        lines += [f"  {line.text}" for line in turn.done]
        if turn.answer:
            lines += _bounded_lines(turn.answer)
        if turn.reason != "completed":
            lines.append(f"  ({turn.reason or 'under way'})")
    return lines[1:]


def _bounded_text(text: str) -> str:
    return text if len(text) <= SHOWN_CHARS else f"{text[:SHOWN_CHARS]}…"


def _bounded_lines(text: str) -> list[str]:
    return hanging_lines("", _bounded_text(text))


def _answer_text(entry: JournalEntry) -> str:
    actions: list[dict[str, Any]] = entry.data.get("actions", [])
    return "\n".join(str(each["respond"]) for each in actions if each.get("respond"))


def _is_shown(entry: JournalEntry, line: StyledLine) -> bool:
    """Return whether it stays: calls are told by what became of them, the answer is shown whole."""
    if entry.event in _HIDDEN_EVENTS or line.tone == "quiet":
        return False
    return entry.event != "ReasoningComplete" or line.tone == "bad"


def turn_summary(turn: JournalTurn) -> str:
    """Return its number and the beginning of what was said, on one line."""
    return f"turn {turn.number}: {on_one_line(turn.said)}"
