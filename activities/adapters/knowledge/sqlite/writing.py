"""Adds, updates and removes items in SQLite. Each call runs in a transaction of the caller."""

import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass

from orga.activities.adapters.knowledge.rows import COLUMNS, UNTAINTED, epoch_micros, item_row, row_item
from orga.activities.adapters.knowledge.sqlite.schema import SELECTED_COLUMNS
from orga.activities.knowledge.arrival import MAX_SETTLED_FACTS, arrival_change, contradictions, replacement_item
from orga.activities.knowledge.erasing import exact_columns, matching_subjects
from orga.activities.knowledge.identity import claim_digest
from orga.activities.knowledge.ports import batches
from orga.activities.knowledge.vectors import code_bytes, pack_vector, vector_code
from orga.activities.knowledge.words import searchable_text
from orga.workflows.types.knowledge import Erasure, KnowledgeKind, Stored, StoredItem

_INSERT = (
    f"INSERT INTO items ({', '.join(COLUMNS)}, changed) VALUES ({', '.join('?' * (len(COLUMNS) + 1))}) "
    f"ON CONFLICT (id) DO UPDATE SET {', '.join(f'{name} = excluded.{name}' for name in (*COLUMNS[1:], 'changed'))} "
    "RETURNING number"
)


MERGE_PAGES = 500
"""Pages of the text index that one step merges, in some 40 ms."""


@dataclass(frozen=True)
class SqliteVectors:
    """Vectors of one embedder, by text."""

    embedder: str
    of: dict[str, Sequence[float]]


def read_stored_items(connection: sqlite3.Connection, ids: Sequence[str]) -> dict[str, StoredItem]:
    """Return the stored items among these ids."""
    found: dict[str, StoredItem] = {}
    for part in batches(ids, 500):
        rows = connection.execute(
            f"SELECT {SELECTED_COLUMNS} FROM items WHERE id IN ({', '.join('?' * len(part))})", part
        )
        found.update((item.id, item) for item in map(row_item, rows))
    return found


def store_items(connection: sqlite3.Connection, items: Sequence[StoredItem], vectors: SqliteVectors) -> list[Stored]:
    """Store items, and return what was done with each. Without a vector, an item is found by words until `reindex`."""
    changed = _next_count(connection, "changed")
    return [_store(connection, item, vectors, changed) for item in items]


def keep_vectors(connection: sqlite3.Connection, items: dict[int, StoredItem], vectors: SqliteVectors) -> None:
    """Store the vectors of items (by number) that have not changed or gone meanwhile."""
    changed = _next_count(connection, "changed")
    for number, item in items.items():
        if read_stored_items(connection, [item.id]).get(item.id) == item:
            _keep_vector(connection, number, vectors.of[searchable_text(item)], vectors.embedder)
            connection.execute("UPDATE items SET changed = ? WHERE number = ?", (changed, number))


def erase(connection: sqlite3.Connection, what: Erasure) -> dict[KnowledgeKind, int]:
    """Erase items that match all conditions. Facts that only these contradicted hold again."""
    condition, values = _erasure_condition(connection, what)
    connection.execute("CREATE TEMP TABLE IF NOT EXISTS going (number INTEGER PRIMARY KEY, id TEXT)")
    connection.execute("DELETE FROM going")
    connection.execute(f"INSERT INTO going SELECT number, id FROM items WHERE {condition}", values)
    counts: dict[KnowledgeKind, int] = dict(
        connection.execute("SELECT kind, count(*) FROM items WHERE number IN (SELECT number FROM going) GROUP BY kind")
    )
    claims = connection.execute(
        "SELECT DISTINCT claim FROM items WHERE claim != '' AND contradicted_by IN (SELECT id FROM going)"
    ).fetchall()
    connection.execute("DELETE FROM items WHERE number IN (SELECT number FROM going)")
    connection.execute("DELETE FROM going")
    if counts:
        changed = _next_count(connection, "changed")
        _next_count(connection, "erased")
        for (claim,) in claims:
            _resolve_claim(connection, claim, "", changed)
    return counts


def merge_words(connection: sqlite3.Connection, *, is_begun: bool) -> bool:
    """Merge a part of the text index, which drops deleted texts, and return whether there is more to merge.

    Args:
        connection: The only writer's connection.
        is_begun: True after a first call, which made FTS5 merge all parts into one.
    """
    before = connection.total_changes
    pages = MERGE_PAGES if is_begun else -MERGE_PAGES
    connection.execute("INSERT INTO words (words, rank) VALUES ('merge', ?)", (pages,))
    return connection.total_changes - before >= 2  # FTS5's rule for "merge": fewer changes mean nothing was merged


def _store(connection: sqlite3.Connection, item: StoredItem, vectors: SqliteVectors, changed: int) -> Stored:
    old = read_stored_items(connection, [item.id]).get(item.id)
    what = arrival_change(old, item)
    if what == "unchanged":
        return Stored(id=item.id, change=what)
    (number,) = connection.execute(_INSERT, (*item_row(replacement_item(old, item)), changed)).fetchone()
    vector = vectors.of.get(searchable_text(item))
    if vector is not None:
        _keep_vector(connection, number, vector, vectors.embedder)
    elif old is not None:
        connection.execute("DELETE FROM vectors WHERE number = ?", (number,))
    contradicts = _resolve_claim(connection, claim_digest(item), item.id, changed)
    return Stored(id=item.id, change=what, contradicts=contradicts)


def _resolve_claim(connection: sqlite3.Connection, claim: str, arriving: str, changed: int) -> tuple[str, ...]:
    """Update which fact of a claim holds, and return the facts that the arriving one newly contradicts."""
    if not claim:
        return ()
    rows = [
        row
        for among, count in (("", MAX_SETTLED_FACTS), (f"AND taint = '{UNTAINTED}'", 1))
        for row in connection.execute(
            f"SELECT {SELECTED_COLUMNS} FROM items WHERE claim = ? AND claim != '' {among} "
            "ORDER BY stored_at DESC, number DESC LIMIT ?",
            (claim, count),
        )
    ]
    facts = list(
        {**{item.id: item for item in map(row_item, rows)}, **read_stored_items(connection, [arriving])}.values()
    )
    before = {fact.id: fact.contradicted_by for fact in facts}
    news = {id_: newer for id_, newer in contradictions(facts, arriving).items() if before[id_] != newer}
    for id_, newer in news.items():
        connection.execute("UPDATE items SET contradicted_by = ?, changed = ? WHERE id = ?", (newer, changed, id_))
    return tuple(sorted(id_ for id_, newer in news.items() if newer == arriving))


def _keep_vector(connection: sqlite3.Connection, number: int, vector: Sequence[float], embedder: str) -> None:
    connection.execute(
        "INSERT INTO vectors (number, embedder, code, vector) VALUES (?, ?, ?, ?) ON CONFLICT (number) DO UPDATE "
        "SET embedder = excluded.embedder, code = excluded.code, vector = excluded.vector",
        (number, embedder, code_bytes(vector_code(vector)), pack_vector(vector)),
    )


def _next_count(connection: sqlite3.Connection, name: str) -> int:
    (value,) = connection.execute(
        "UPDATE counters SET value = value + 1 WHERE name = ? RETURNING value", (name,)
    ).fetchone()
    return int(value)


def _erasure_condition(connection: sqlite3.Connection, what: Erasure) -> tuple[str, list[object]]:
    named: dict[str, object] = {f"{column} = ?": value for column, value in exact_columns(what).items()}
    if what.tenant is not None:
        named["tenant = ? AND scope != 'global'"] = what.tenant
    if what.expired_by is not None:
        named["expires_at <= ?"] = epoch_micros(what.expired_by)
    listed: list[tuple[str, Sequence[str]]] = [("id", what.ids)] if what.ids else []
    if what.subject:
        subjects = connection.execute("SELECT DISTINCT subject FROM items WHERE subject != ''").fetchall()
        listed.append(("subject", matching_subjects((subject for (subject,) in subjects), what.subject)))
    conditions = [f"{column} IN ({', '.join('?' * len(values))})" for column, values in listed]
    return " AND ".join([*conditions, *named]), [*(value for _, each in listed for value in each), *named.values()]
