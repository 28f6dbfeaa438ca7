"""One line of the journal."""

from datetime import datetime
from typing import Any

from workflows.types.record import Record


class JournalEntry(Record):
    """An event of a run. `hash` is chained over every field, so that an exported journal shows tampering."""

    sequence: int
    timestamp: datetime
    agent: str
    iteration: int
    event: str
    data: dict[str, Any] = {}
    hash: str = ""
