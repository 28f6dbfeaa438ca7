"""The journal as a readable timeline, grouped by iteration, with seconds since the start."""

from datetime import datetime

from client.cli.narration import Narrator
from workflows.types.journal import JournalEntry

EVENT_CHARS = 21


class Timeline:
    """Takes entries in order."""

    def __init__(self) -> None:
        self._narrator = Narrator()
        self._start: datetime | None = None
        self._iteration = 0

    def lines(self, entry: JournalEntry) -> list[str]:
        """Return the lines of the next entry."""
        self._start = self._start or entry.timestamp
        since = (entry.timestamp - self._start).total_seconds()
        told = [line.text for line in self._narrator.tell(entry)] or [""]
        head = [f"── iteration {entry.iteration}"] if entry.iteration > self._iteration else []
        self._iteration = entry.iteration
        first = f"{since:+10.3f}s {entry.event:<{EVENT_CHARS}} {told[0]}".rstrip()
        indent = " " * (12 + EVENT_CHARS)
        return [*head, first, *(f"{indent} {text}" for text in told[1:])]
