"""What is read for the operator: pages of items, figures, what has no vector yet."""

from collections.abc import Sequence

from psycopg import sql

from orga.activities.adapters.knowledge.postgres.rows import SELECTED
from orga.activities.adapters.knowledge.postgres.schema import VERSION, Connection
from orga.activities.adapters.knowledge.rows import item_of
from orga.activities.knowledge.ports import StoreFacts
from orga.workflows.types.knowledge import KnowledgeKind, StoredItem

_PAGE = sql.SQL(
    "SELECT {} FROM orga_knowledge.items WHERE id > %s AND starts_with(source, %s) AND (%s OR kind = ANY(%s)) "
    "ORDER BY id LIMIT %s"
).format(SELECTED)
_WITHOUT_VECTOR = sql.SQL(
    "FROM orga_knowledge.items LEFT JOIN orga_knowledge.vectors "
    "ON vectors.number = items.number AND vectors.embedder = %s WHERE vectors.number IS NULL"
)
_FIGURES = (
    "SELECT count(*) FILTER (WHERE taint != '[]'), count(*) FILTER (WHERE expires_at <= %s), "
    "count(*) FILTER (WHERE contradicted_by != '') FROM orga_knowledge.items"
)
_SIZE = "SELECT pg_total_relation_size('orga_knowledge.items') + pg_total_relation_size('orga_knowledge.vectors')"


async def page_of(
    connection: Connection, kinds: Sequence[KnowledgeKind], source_prefix: str, after: str, limit: int
) -> list[StoredItem]:
    """Return the next items behind an id."""
    cursor = await connection.execute(_PAGE, (after, source_prefix, not kinds, list(kinds), limit))
    return [item_of(row) for row in await cursor.fetchall()]


async def unindexed(connection: Connection, embedder: str, limit: int) -> tuple[list[StoredItem], int]:
    """Return the next items that have no vector of this embedder, and how many there are in all."""
    total = await (await connection.execute(sql.SQL("SELECT count(*) ") + _WITHOUT_VECTOR, (embedder,))).fetchone()
    query = sql.SQL("SELECT {} {} ORDER BY items.number LIMIT %s").format(SELECTED, _WITHOUT_VECTOR)
    cursor = await connection.execute(query, (embedder, limit))
    return [item_of(row) for row in await cursor.fetchall()], int(total[0]) if total else 0


async def facts_of(connection: Connection, place: str, embedder: str, now: int) -> StoreFacts:
    """Return what the store holds."""
    names = await connection.execute("SELECT DISTINCT embedder FROM orga_knowledge.vectors ORDER BY embedder")
    found = ", ".join(name for (name,) in await names.fetchall())
    counts = await connection.execute("SELECT kind, count(*) FROM orga_knowledge.items GROUP BY kind ORDER BY kind")
    kinds: dict[KnowledgeKind, int] = dict(await counts.fetchall())
    figures = await (await connection.execute(_FIGURES, (now,))).fetchone()
    size = await (await connection.execute(_SIZE)).fetchone()
    assert figures is not None
    assert size is not None
    return StoreFacts(
        backend="postgres",
        place=place,
        schema_version=VERSION,
        embedder=found or embedder,
        counts=kinds,
        tainted=figures[0],
        expired=figures[1],
        contradicted=figures[2],
        unindexed=(await unindexed(connection, embedder, 0))[1],
        size_bytes=int(size[0]),
    )
