"""What of a journal was told already, so that reading it again, after a break or a rewind, brings only what is new."""

from orga.workflows.types.status import JournalEntry


class Told:
    """Takes entries in order; each reading begins at the first."""

    def __init__(self) -> None:
        self._hashes: list[str] = []

    def is_news(self, entry: JournalEntry) -> bool:
        """Return whether this entry was not told yet; from where a rewound run parts, all of it is new."""
        index = entry.sequence
        if index < len(self._hashes) and self._hashes[index] == entry.hash:
            return False
        self._hashes[index:] = [entry.hash]
        return True
