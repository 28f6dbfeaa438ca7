"""What can still be read of a damaged file: all items but those on the damaged pages."""

import sqlite3
from collections.abc import Iterator, Sequence

from orga.activities.adapters.knowledge.rows import DamagedItem, item_of
from orga.activities.adapters.knowledge.sqlite.schema import SELECTED
from orga.workflows.types.knowledge import KnowledgeKind, StoredItem

SPAN = 256
"""Numbers of items that are looked through at once."""


def spans(connection: sqlite3.Connection) -> list[tuple[int, int]]:
    """Return the numbers that items have ever had, in parts: each from behind its first to its last."""
    (last,) = connection.execute("SELECT coalesce(max(seq), 0) FROM sqlite_sequence WHERE name = 'items'").fetchone()
    return [(low, min(low + SPAN, last)) for low in range(0, last, SPAN)]


def readable(connection: sqlite3.Connection, low: int, high: int) -> Iterator[StoredItem | None]:
    """Yield the items with numbers behind the one up to the other, None for each that cannot be read.

    They are sought by their numbers, so that no page but their own is touched, and by halves where one of them fails.
    """
    try:
        rows = connection.execute(f"SELECT {SELECTED} FROM items WHERE number > ? AND number <= ?", (low, high))
        found = list(map(item_of, rows.fetchall()))
    except (sqlite3.DatabaseError, DamagedItem):
        if high - low == 1:
            yield None
            return
        middle = (low + high) // 2
        yield from readable(connection, low, middle)
        yield from readable(connection, middle, high)
    else:
        yield from found


def lost_items(connection: sqlite3.Connection) -> int:
    """Return how many items cannot be read: some 2 s where there are 100,000."""
    return sum(item is None for span in spans(connection) for item in readable(connection, *span))


def is_of(item: StoredItem, kinds: Sequence[KnowledgeKind], source_prefix: str) -> bool:
    """Return whether an item is of these kinds (any where none is named), and from a source that begins so."""
    return (not kinds or item.kind in kinds) and item.provenance.source.startswith(source_prefix)
