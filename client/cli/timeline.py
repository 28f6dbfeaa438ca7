"""The journal as a readable timeline, grouped by iteration, with seconds since the start; delegates are indented."""

from collections import defaultdict
from datetime import datetime

from orga.client.cli.narration import Narrator
from orga.client.cli.nesting import INDENT, Nesting, run_of
from orga.workflows.types.status import JournalEntry

EVENT_CHARS = 21


class Timeline:
    """Takes entries in order."""

    def __init__(self) -> None:
        self._nesting = Nesting()
        self._narrators: defaultdict[str, Narrator] = defaultdict(Narrator)
        self._iterations: defaultdict[str, int] = defaultdict(int)
        self._start: datetime | None = None

    def lines(self, entry: JournalEntry) -> list[str]:
        """Return the lines of the next entry."""
        self._start = self._start or entry.timestamp
        since = (entry.timestamp - self._start).total_seconds()
        run, indent = run_of(entry), INDENT * self._nesting.depth(entry)
        told = [line.text for line in self._narrators[run].tell(entry)] or [""]
        head = [f"── iteration {entry.iteration}"] if entry.iteration > self._iterations[run] else []
        self._iterations[run] = entry.iteration
        first = f"{since:+10.3f}s {entry.event:<{EVENT_CHARS}} {told[0]}".rstrip()
        below = " " * (12 + EVENT_CHARS)
        return [f"{indent}{line}" for line in (*head, first, *(f"{below} {text}" for text in told[1:]))]
