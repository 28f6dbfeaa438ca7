"""The knowledge store over a database. A backend opens its transactions."""

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Generic, TypeVar

from orga.activities.adapters.knowledge.rows import MissingVectorsNotice, epoch_micros
from orga.activities.adapters.knowledge.search import KnowledgeSearch
from orga.activities.adapters.knowledge.transactions import E, KnowledgeTransaction
from orga.activities.knowledge.arrival import arrival_change, arriving_item, checked_item
from orga.activities.knowledge.erasing import require_named
from orga.activities.knowledge.ports import PAGE_ITEMS, Embedder, Progress, StoreFacts, paged_items
from orga.activities.knowledge.ranking import ranked_items
from orga.activities.knowledge.words import searchable_text
from orga.activities.threads import Threads
from orga.workflows.types.knowledge import Erasure, KnowledgeItem, KnowledgeKind, Recall, Recalled, Stored, StoredItem

T = TypeVar("T")

Work = Callable[[KnowledgeTransaction[E]], Coroutine[Any, Any, T]]
"""What is done in one transaction. It waits for nothing but the transaction."""

_REINDEX_BATCH = 128
_ENCODERS = Threads("knowledge-encoder", 2)


def utc_now() -> datetime:
    """Return the time, with its zone."""
    return datetime.now(UTC)


class DatabaseStore(ABC, Generic[E]):
    """A `KnowledgeStore`. All backends recall the same items, in the same order and with the same scores."""

    def __init__(self, place: str, embedder: Embedder, now: Callable[[], datetime]) -> None:
        """Keep the settings. Nothing is opened yet.

        Args:
            place: The file or the server, as people see it.
            embedder: The current embedder. Vectors of another one are ignored until `reindex`.
            now: Returns the time, with a time zone.
        """
        self._shown_place = place
        self._embedder = embedder
        self._now = now
        self._missing_vectors = MissingVectorsNotice(place, embedder.name)

    @abstractmethod
    async def _read(self, work: Work[E, T]) -> T:
        """Run `work` in a transaction that sees one state of the store."""

    @abstractmethod
    async def _write(self, work: Work[E, T]) -> T:
        """Run `work` in a transaction. No other writer runs at the same time."""

    @abstractmethod
    def _encoded(self, vectors: Mapping[str, Sequence[float]]) -> dict[str, E]:
        """Return what the database keeps of each text. A thousand take a second, so a thread does it."""

    async def store(self, items: Sequence[KnowledgeItem]) -> list[Stored]:
        """Store all items or none, and return what was done with each, in order.

        Raises:
            KnowledgeError: Nothing was stored.
        """
        now = self._now()
        arriving = [arriving_item(checked_item(item), now) for item in items]
        if not arriving:
            return []
        known = await self._read(lambda transaction: transaction.stored_items([item.id for item in arriving]))
        if all(arrival_change(known.get(item.id), item) == "unchanged" for item in arriving):
            return [Stored(id=item.id, change="unchanged") for item in arriving]
        encoded = await self._embedded(arriving)  # all, since an unchanged item may be new once we hold the lock
        return await self._write(lambda transaction: transaction.store_items(arriving, encoded))

    async def recall(self, wish: Recall) -> list[Recalled]:
        """Return the matching items, the best first. A contradicted fact comes after the newer one.

        Raises:
            KnowledgeError: The store cannot be read.
        """
        query = (await self._embedder.embed([wish.text]))[0] if wish.text.strip() else None
        now = epoch_micros(self._now())

        async def recalled(transaction: KnowledgeTransaction[E]) -> list[Recalled]:
            candidates = await KnowledgeSearch(transaction, wish, now=now).candidates(query)
            self._missing_vectors.log_missing(candidates)
            return ranked_items(wish, query, candidates)

        return await self._read(recalled)

    async def get(self, item_id: str) -> StoredItem | None:
        """Return the item, even if it has expired."""
        return (await self._read(lambda transaction: transaction.stored_items([item_id]))).get(item_id)

    def items(self, *, kinds: Sequence[KnowledgeKind] = (), source_prefix: str = "") -> AsyncIterator[StoredItem]:
        """Return all items of these kinds, or of all kinds, ordered by id, a page at a time.

        Raises:
            KnowledgeError: The store is damaged.
        """
        return paged_items(
            lambda after: self._read(lambda transaction: transaction.page(kinds, source_prefix, after, PAGE_ITEMS))
        )

    async def forget(self, what: Erasure) -> dict[KnowledgeKind, int]:
        """Erase items, and return how many of each kind.

        Raises:
            KnowledgeError: Nothing is named, or nothing was erased.
        """
        require_named(what)
        return await self._write(lambda transaction: transaction.erase(what))

    async def facts(self) -> StoreFacts:
        """Return the facts about the store.

        Raises:
            KnowledgeError: The store cannot be read, or is damaged.
        """
        now = epoch_micros(self._now())
        return await self._read(lambda transaction: transaction.facts(self._shown_place, now))

    async def reindex(self, progress: Progress) -> int:
        """Recompute the text index and vectors of other embedders, and return the number of items.

        Each batch is a transaction, so the next call continues after an interruption.
        """
        await self._write(lambda transaction: transaction.rebuild_words())
        total = await self._read(lambda transaction: transaction.count_unindexed())
        done = 0
        progress(done, total)
        while part := await self._read(lambda transaction: transaction.unindexed_items(_REINDEX_BATCH)):
            encoded = await self._embedded(part)
            await self._write(lambda transaction, p=part, e=encoded: transaction.keep_vectors(p, e))
            done += len(part)
            progress(done, max(done, total))
        return done

    async def _embedded(self, items: Sequence[StoredItem]) -> dict[str, E]:
        texts = list(dict.fromkeys(map(searchable_text, items)))
        vectors = dict(zip(texts, await self._embedder.embed(texts), strict=True))
        return await _ENCODERS.run(self._encoded, vectors)
