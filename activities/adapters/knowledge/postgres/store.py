"""The store of a fleet: PostgreSQL with pgvector, one for the workers of all machines."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from datetime import UTC, datetime

from orga.activities.adapters.knowledge.left_aside import LeftAside
from orga.activities.adapters.knowledge.paging import PAGE, paged
from orga.activities.adapters.knowledge.postgres.address import Address
from orga.activities.adapters.knowledge.postgres.candidates import Query, Search
from orga.activities.adapters.knowledge.postgres.connections import Connections
from orga.activities.adapters.knowledge.postgres.reading import facts_of, page_of, unindexed
from orga.activities.adapters.knowledge.postgres.words import Cutter
from orga.activities.adapters.knowledge.postgres.writing import (
    Vectors,
    erase,
    keep_vectors,
    known_items,
    store_items,
    vectors_of,
)
from orga.activities.adapters.knowledge.rows import micros
from orga.activities.knowledge.arrival import arrived, change
from orga.activities.knowledge.checks import checked
from orga.activities.knowledge.erasing import require_named
from orga.activities.knowledge.ports import Embedder, Progress, StoreFacts
from orga.activities.knowledge.ranking import ranked
from orga.activities.knowledge.words import query_terms, searched_text
from orga.workflows.types.knowledge import Erasure, KnowledgeItem, KnowledgeKind, Recall, Recalled, Stored, StoredItem

_REINDEXED = 128


def _now() -> datetime:
    return datetime.now(UTC)


class PostgresStore:
    """A `KnowledgeStore` in a database.

    What it recalls, in which order and with which scores, is what the embedded store recalls of the same items: the
    database finds candidates within the same limits, shared functions rank them.
    """

    def __init__(self, place: Address, embedder: Embedder, *, now: Callable[[], datetime] = _now) -> None:
        """Connect to nothing yet.

        Args:
            place: Of the database; its tables are made at the first need.
            embedder: Vectors of another one are left aside until `reindex`.
            now: The time, aware.
        """
        self._place = place
        self._embedder = embedder
        self._now = now
        self._connections = Connections(place)
        self._cutter = Cutter()
        self._left_aside = LeftAside(place.place, embedder.name)

    async def store(self, items: Sequence[KnowledgeItem]) -> list[Stored]:
        """Store all of them or none, and return what became of each, in order.

        Raises:
            KnowledgeError: Nothing was stored.
        """
        now = self._now()
        arriving = [arrived(checked(item), now) for item in items]
        if not arriving:
            return []
        async with self._connections.reading() as connection:
            known = await known_items(connection, [item.id for item in arriving])
        if all(change(known.get(item.id), item) == "unchanged" for item in arriving):
            return [Stored(id=item.id, change="unchanged") for item in arriving]
        vectors = await self._vectors(arriving)  # of all: what is unchanged now may be news once the store is ours
        texts = list(dict.fromkeys(map(searched_text, arriving)))
        words = dict(zip(texts, await asyncio.to_thread(self._cutter.cut, texts), strict=True))
        async with self._connections.writing() as connection:
            return await store_items(connection, arriving, vectors, words)

    async def recall(self, wish: Recall) -> list[Recalled]:
        """Return what fits, the best first; a fact that a newer one contradicts stands behind that one.

        Raises:
            KnowledgeError: The store cannot be read.
        """
        vector = (await self._embedder.embed([wish.text]))[0] if wish.text.strip() else None
        now = micros(self._now())
        async with self._connections.reading() as connection:
            search = Search(connection, wish, now=now, embedder=self._embedder.name)
            candidates = await search.candidates(Query(self._terms(wish.text), vector))
        self._left_aside.notice(candidates)
        return ranked(wish, vector, candidates)

    async def get(self, item_id: str) -> StoredItem | None:
        """Return the item, expired or not."""
        async with self._connections.reading() as connection:
            return (await known_items(connection, [item_id])).get(item_id)

    def items(self, *, kinds: Sequence[KnowledgeKind] = (), source_prefix: str = "") -> AsyncIterator[StoredItem]:
        """Return all items of these kinds (all kinds where none is named), by id, a page at a time."""
        return paged(lambda after: self._page(kinds, source_prefix, after))

    async def forget(self, what: Erasure) -> dict[KnowledgeKind, int]:
        """Erase them, and return how many went.

        Raises:
            KnowledgeError: Nothing is named, or nothing was erased.
        """
        require_named(what)
        async with self._connections.writing() as connection:
            return await erase(connection, what)

    async def purge(self) -> None:
        """Take what is gone out of the tables and their indexes. The server's log and its backups are not ours.

        Raises:
            KnowledgeError: The database cannot be reached, or refuses.
        """
        async with self._connections.alone() as connection:
            await connection.execute("VACUUM orga_knowledge.items, orga_knowledge.vectors")

    async def facts(self) -> StoreFacts:
        """Return what the store holds.

        Raises:
            KnowledgeError: The database cannot be read.
        """
        async with self._connections.reading() as connection:
            return await facts_of(connection, self._place.place, self._embedder.name, micros(self._now()))

    async def reindex(self, progress: Progress) -> int:
        """Make the text index and vectors of another embedder anew, and return of how many items.

        Each part is a transaction: stopped at any time, the next call goes on from there.
        """
        async with self._connections.writing() as connection:
            await connection.execute("REINDEX INDEX orga_knowledge.items_by_words")
        done = 0
        while True:
            async with self._connections.reading() as connection:
                part, left = await unindexed(connection, self._embedder.name, _REINDEXED)
            progress(done, done + left)
            if not part:
                return done
            vectors = await self._vectors(part)
            async with self._connections.writing() as connection:
                await keep_vectors(connection, part, vectors)
            done += len(part)

    async def close(self) -> None:
        """Let go of the connections."""
        self._cutter.close()
        await self._connections.close()

    def _terms(self, text: str) -> tuple[frozenset[str], ...]:
        return tuple(filter(None, self._cutter.cut(query_terms(text))))

    async def _vectors(self, items: Sequence[StoredItem]) -> Vectors:
        texts = list(dict.fromkeys(map(searched_text, items)))
        found = dict(zip(texts, await self._embedder.embed(texts), strict=True))
        return await asyncio.to_thread(vectors_of, self._embedder.name, found)

    async def _page(self, kinds: Sequence[KnowledgeKind], source_prefix: str, after: str) -> list[StoredItem]:
        async with self._connections.reading() as connection:
            return await page_of(connection, kinds, source_prefix, after, PAGE)
