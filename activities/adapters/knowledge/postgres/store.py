"""The knowledge store of a fleet: PostgreSQL with pgvector, shared by the workers of all machines."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from datetime import UTC, datetime

from psycopg import sql

from orga.activities.adapters.knowledge.postgres.candidates import PostgresSearch, SearchQuery
from orga.activities.adapters.knowledge.postgres.connections import PostgresConnections
from orga.activities.adapters.knowledge.postgres.schema import (
    SELECTED_COLUMNS,
    VERSION,
    PostgresAddress,
    PostgresConnection,
)
from orga.activities.adapters.knowledge.postgres.words import WordTokenizer
from orga.activities.adapters.knowledge.postgres.writing import (
    PostgresVectors,
    encoded_vectors,
    erase,
    keep_vectors,
    read_stored_items,
    store_items,
)
from orga.activities.adapters.knowledge.rows import MissingVectorsNotice, epoch_micros, row_item
from orga.activities.knowledge.arrival import arrival_change, arriving_item, checked_item
from orga.activities.knowledge.erasing import require_named
from orga.activities.knowledge.ports import PAGE_ITEMS, Embedder, Progress, StoreFacts, paged_items
from orga.activities.knowledge.ranking import ranked_items
from orga.activities.knowledge.words import query_terms, searchable_text
from orga.workflows.types.knowledge import Erasure, KnowledgeItem, KnowledgeKind, Recall, Recalled, Stored, StoredItem

_PAGE = sql.SQL(
    "SELECT {} FROM orga_knowledge.items WHERE id > %s AND starts_with(source, %s) AND (%s OR kind = ANY(%s)) "
    "ORDER BY id LIMIT %s"
).format(SELECTED_COLUMNS)
_WITHOUT_VECTOR = sql.SQL(
    "FROM orga_knowledge.items LEFT JOIN orga_knowledge.vectors "
    "ON vectors.number = items.number AND vectors.embedder = %s WHERE vectors.number IS NULL"
)
_FIGURES = (
    "SELECT count(*) FILTER (WHERE taint != '[]'), count(*) FILTER (WHERE expires_at <= %s), "
    "count(*) FILTER (WHERE contradicted_by != '') FROM orga_knowledge.items"
)
_SIZE = "SELECT pg_total_relation_size('orga_knowledge.items') + pg_total_relation_size('orga_knowledge.vectors')"


async def read_page(
    connection: PostgresConnection, kinds: Sequence[KnowledgeKind], source_prefix: str, after: str, limit: int
) -> list[StoredItem]:
    """Return the next items after an id."""
    cursor = await connection.execute(_PAGE, (after, source_prefix, not kinds, list(kinds), limit))
    return [row_item(row) for row in await cursor.fetchall()]


async def unindexed_items(connection: PostgresConnection, embedder: str, limit: int) -> tuple[list[StoredItem], int]:
    """Return the next items without a vector of this embedder, and the number of all such items."""
    total = await (await connection.execute(sql.SQL("SELECT count(*) ") + _WITHOUT_VECTOR, (embedder,))).fetchone()
    query = sql.SQL("SELECT {} {} ORDER BY items.number LIMIT %s").format(SELECTED_COLUMNS, _WITHOUT_VECTOR)
    cursor = await connection.execute(query, (embedder, limit))
    return [row_item(row) for row in await cursor.fetchall()], int(total[0]) if total else 0


async def store_facts(connection: PostgresConnection, place: str, embedder: str, now: int) -> StoreFacts:
    """Return the facts about the store."""
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
        unindexed=(await unindexed_items(connection, embedder, 0))[1],
        size_bytes=int(size[0]),
    )


_REINDEX_BATCH = 128


def _now() -> datetime:
    return datetime.now(UTC)


class PostgresStore:
    """A `KnowledgeStore` in a database.

    It recalls the same items as the embedded store, in the same order and with the same scores: the database finds
    candidates within the same limits, and shared functions rank them.
    """

    def __init__(self, place: PostgresAddress, embedder: Embedder, *, now: Callable[[], datetime] = _now) -> None:
        """Keep the settings. Nothing is connected yet.

        Args:
            place: Address of the database. Its tables are created when they are first needed.
            embedder: The current embedder. Vectors of another one are ignored until `reindex`.
            now: Returns the time, with a time zone.
        """
        self._place = place
        self._embedder = embedder
        self._now = now
        self._connections = PostgresConnections(place)
        self._cutter = WordTokenizer()
        self._missing_vectors = MissingVectorsNotice(place.place, embedder.name)

    async def store(self, items: Sequence[KnowledgeItem]) -> list[Stored]:
        """Store all items or none, and return what was done with each, in order.

        Raises:
            KnowledgeError: Nothing was stored.
        """
        now = self._now()
        arriving = [arriving_item(checked_item(item), now) for item in items]
        if not arriving:
            return []
        async with self._connections.read_transaction() as connection:
            known = await read_stored_items(connection, [item.id for item in arriving])
        if all(arrival_change(known.get(item.id), item) == "unchanged" for item in arriving):
            return [Stored(id=item.id, change="unchanged") for item in arriving]
        vectors = await self._vectors(arriving)  # for all, since an unchanged item may be new once we hold the lock
        texts = list(dict.fromkeys(map(searchable_text, arriving)))
        words = dict(zip(texts, await asyncio.to_thread(self._cutter.tokenize, texts), strict=True))
        async with self._connections.write_transaction() as connection:
            return await store_items(connection, arriving, vectors, words)

    async def recall(self, wish: Recall) -> list[Recalled]:
        """Return the matching items, the best first. A contradicted fact comes after the newer one.

        Raises:
            KnowledgeError: The store cannot be read.
        """
        vector = (await self._embedder.embed([wish.text]))[0] if wish.text.strip() else None
        now = epoch_micros(self._now())
        async with self._connections.read_transaction() as connection:
            search = PostgresSearch(connection, wish, now=now, embedder=self._embedder.name)
            candidates = await search.candidates(SearchQuery(self._term_words(wish.text), vector))
        self._missing_vectors.log_missing(candidates)
        return ranked_items(wish, vector, candidates)

    async def get(self, item_id: str) -> StoredItem | None:
        """Return the item, even if it has expired."""
        async with self._connections.read_transaction() as connection:
            return (await read_stored_items(connection, [item_id])).get(item_id)

    def items(self, *, kinds: Sequence[KnowledgeKind] = (), source_prefix: str = "") -> AsyncIterator[StoredItem]:
        """Return all items of these kinds, or of all kinds, ordered by id, a page at a time."""
        return paged_items(lambda after: self._page(kinds, source_prefix, after))

    async def forget(self, what: Erasure) -> dict[KnowledgeKind, int]:
        """Erase items, and return how many of each kind.

        Raises:
            KnowledgeError: Nothing is named, or nothing was erased.
        """
        require_named(what)
        async with self._connections.write_transaction() as connection:
            return await erase(connection, what)

    async def purge(self) -> None:
        """Remove deleted rows from the tables and indexes. The server's log and its backups do not belong to us.

        Raises:
            KnowledgeError: The database cannot be reached, or refuses.
        """
        async with self._connections.without_transaction() as connection:
            await connection.execute("VACUUM orga_knowledge.items, orga_knowledge.vectors")

    async def facts(self) -> StoreFacts:
        """Return the facts about the store.

        Raises:
            KnowledgeError: The database cannot be read.
        """
        async with self._connections.read_transaction() as connection:
            return await store_facts(connection, self._place.place, self._embedder.name, epoch_micros(self._now()))

    async def reindex(self, progress: Progress) -> int:
        """Recompute the text index and vectors of other embedders, and return the number of items.

        Each batch is a transaction, so the next call continues after an interruption.
        """
        async with self._connections.write_transaction() as connection:
            await connection.execute("REINDEX INDEX orga_knowledge.items_by_words")
        done = 0
        while True:
            async with self._connections.read_transaction() as connection:
                part, left = await unindexed_items(connection, self._embedder.name, _REINDEX_BATCH)
            progress(done, done + left)
            if not part:
                return done
            vectors = await self._vectors(part)
            async with self._connections.write_transaction() as connection:
                await keep_vectors(connection, part, vectors)
            done += len(part)

    async def close(self) -> None:
        """Close the connections."""
        self._cutter.close()
        await self._connections.close()

    def _term_words(self, text: str) -> tuple[frozenset[str], ...]:
        return tuple(filter(None, self._cutter.tokenize(query_terms(text))))

    async def _vectors(self, items: Sequence[StoredItem]) -> PostgresVectors:
        texts = list(dict.fromkeys(map(searchable_text, items)))
        found = dict(zip(texts, await self._embedder.embed(texts), strict=True))
        return await asyncio.to_thread(encoded_vectors, self._embedder.name, found)

    async def _page(self, kinds: Sequence[KnowledgeKind], source_prefix: str, after: str) -> list[StoredItem]:
        async with self._connections.read_transaction() as connection:
            return await read_page(connection, kinds, source_prefix, after, PAGE_ITEMS)
