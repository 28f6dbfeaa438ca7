"""What is read for the operator: pages of items, figures, what has no vector yet."""

import sqlite3
from collections.abc import Sequence
from pathlib import Path

from orga.activities.adapters.knowledge.rows import item_of
from orga.activities.adapters.knowledge.sqlite.failures import corrupt, unreadable
from orga.activities.adapters.knowledge.sqlite.salvage import lost_items
from orga.activities.adapters.knowledge.sqlite.schema import SELECTED, VERSION
from orga.activities.knowledge.ports import StoreFacts
from orga.workflows.types.knowledge import KnowledgeKind, StoredItem

_WITHOUT_VECTOR = (
    "FROM items LEFT JOIN vectors ON vectors.number = items.number AND vectors.embedder = ? "
    "WHERE vectors.number IS NULL"
)


def page_of(
    connection: sqlite3.Connection, kinds: Sequence[KnowledgeKind], source_prefix: str, after: str, limit: int
) -> list[StoredItem]:
    """Return the next items behind an id."""
    condition = f" AND kind IN ({', '.join('?' * len(kinds))})" if kinds else ""
    rows = connection.execute(
        f"SELECT {SELECTED} FROM items WHERE id > ? AND substr(source, 1, ?) = ?{condition} ORDER BY id LIMIT ?",
        (after, len(source_prefix), source_prefix, *kinds, limit),
    )
    return list(map(item_of, rows))


def unindexed(connection: sqlite3.Connection, embedder: str, limit: int) -> tuple[dict[int, StoredItem], int]:
    """Return the next items by their numbers that have no vector of this embedder, and how many there are in all."""
    (total,) = connection.execute(f"SELECT count(*) {_WITHOUT_VECTOR}", (embedder,)).fetchone()
    rows = connection.execute(
        f"SELECT {SELECTED}, items.number {_WITHOUT_VECTOR} ORDER BY items.number LIMIT ?", (embedder, limit)
    )
    return {row[-1]: item_of(row) for row in rows}, int(total)


def facts_of(connection: sqlite3.Connection, path: Path, embedder: str, now: int) -> StoreFacts:
    """Return what a sound file holds.

    Raises:
        KnowledgeError: It is damaged.
    """
    (verdict,) = connection.execute("PRAGMA quick_check(1)").fetchone()
    if verdict != "ok":
        raise corrupt(path, str(verdict).replace("\n", " "))
    if lost := lost_items(connection):  # SQLite does not look into values
        raise unreadable(path, lost)
    names = [name for (name,) in connection.execute("SELECT DISTINCT embedder FROM vectors ORDER BY embedder")]
    tainted, expired, contradicted = connection.execute(
        "SELECT count(*) FILTER (WHERE taint != '[]'), count(*) FILTER (WHERE expires_at <= ?), "
        "count(*) FILTER (WHERE contradicted_by != '') FROM items",
        (now,),
    ).fetchone()
    (pages,) = connection.execute("PRAGMA page_count").fetchone()
    (page_bytes,) = connection.execute("PRAGMA page_size").fetchone()
    return StoreFacts(
        backend="sqlite",
        place=str(path),
        schema_version=VERSION,
        embedder=", ".join(names) or embedder,
        counts=dict(connection.execute("SELECT kind, count(*) FROM items GROUP BY kind ORDER BY kind")),
        tainted=tainted,
        expired=expired,
        contradicted=contradicted,
        unindexed=unindexed(connection, embedder, 0)[1],
        size_bytes=pages * page_bytes,
    )
