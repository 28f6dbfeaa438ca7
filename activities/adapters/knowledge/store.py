"""The knowledge store over any database: storing, recall and reindexing. A subclass opens the transactions."""

import logging
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Generic, TypeVar

from orga.activities.adapters.knowledge.transactions import (
    SELECTED_COLUMNS,
    UNTAINTED,
    E,
    KnowledgeTransaction,
    epoch_micros,
    row_item,
)
from orga.activities.adapters.threads import Threads
from orga.activities.knowledge.arrival import arrival_change, arriving_item, checked_item
from orga.activities.knowledge.identity import reader_audiences, require_named, tainted_claims
from orga.activities.knowledge.ports import PAGE_ITEMS, Embedder, Progress, StoreFacts, batches, paged_items
from orga.activities.knowledge.ranking import (
    COMMON,
    MAX_IN_FOLDER,
    Candidate,
    candidate_limit,
    is_conventions_only,
    ranked_items,
    separate_kinds,
)
from orga.activities.knowledge.words import searchable_text
from orga.workflows.types.knowledge import Erasure, KnowledgeItem, KnowledgeKind, Recall, Recalled, Stored, StoredItem

_log = logging.getLogger(__name__)

_MAX_EXAMINED = 200
"""Items that one statement reads to find out which of them are visible."""

_VISIBLE = (
    "items.place = ANY(%(audiences)s) AND items.kind = ANY(%(kinds)s) "
    "AND (items.expires_at IS NULL OR items.expires_at > %(now)s)"
)


class KnowledgeSearch:
    """One recall in one transaction. It finds candidates in bounded time: by words, by vectors and by folder."""

    def __init__(self, transaction: KnowledgeTransaction[Any], query: Recall, *, now: int) -> None:
        self._transaction = transaction
        self._query = query
        self._enough = candidate_limit(query)
        self._audiences = list(reader_audiences(query.reader, query.scopes))
        self._visible: dict[str, object] = {"audiences": self._audiences, "kinds": list(query.kinds), "now": now}

    async def candidates(self, vector: Sequence[float] | None) -> list[Candidate]:
        """Return items that may match, facts that contradict them, and clean facts that differ from tainted ones.

        Without the vector of the query's text, items are found by words only.
        """
        query = self._query
        if query.directory is not None or query.language is not None or not query.text.strip():
            ranks_by_text = bool(query.text.strip())  # then only some of the newest items may match
            numbers = await self._numbers_in_folder(MAX_IN_FOLDER if ranks_by_text else query.limit)
        else:
            numbers = await self._numbers_by_text(vector)
        found = await self._load_candidates("items.number", numbers)
        contradicting = {each.item.contradicted_by for each in found if each.item.contradicted_by}
        missing = contradicting - {each.item.id for each in found}
        claims = tainted_claims((each.item for each in found), self._audiences)
        clean = await self._load_candidates(
            # `claim != ''` lets a database use the partial index on claims.
            f"items.taint = '{UNTAINTED}' AND items.contradicted_by = '' AND items.claim != '' AND items.claim",
            sorted(claims),
        )
        return [*found, *await self._load_candidates("items.id", sorted(missing)), *clean]

    async def _numbers_in_folder(self, limit: int) -> list[int]:
        query, condition = self._query, ""
        if query.directory is not None:
            condition += " AND items.directory = %(directory)s"
        if query.language is not None:
            condition += " AND items.language = %(language)s"
        if query.language:
            condition += " AND items.language != ''"  # without this text a database does not use the partial index
        order = "stored_at DESC"
        if is_conventions_only(query):
            order = f"items.confidence DESC, items.key{self._transaction.byte_order}"
        return await self._numbers(
            f"SELECT number FROM {self._transaction.tables}items "
            f"WHERE {_VISIBLE}{condition} ORDER BY {order}, items.id LIMIT %(limit)s",
            directory=query.directory,
            language=query.language,
            limit=limit,
        )

    async def _numbers_by_text(self, vector: Sequence[float] | None) -> list[int]:
        by_words = list(dict.fromkeys(await self._numbers_by_words()))
        numbers = set[int]()
        for kinds in separate_kinds(self._query):
            numbers.update(await self._first_visible(by_words, kinds))
            if vector is not None:
                visible = {**self._visible, "kinds": list(kinds)}
                numbers.update(await self._transaction.nearest_numbers(vector, visible, self._enough))
        return sorted(numbers)

    async def _numbers_by_words(self) -> list[int]:
        """Return the newest items with all words, then those with the rarest words.

        Words that `COMMON` or more items have are ignored. If all words are so common, the newest items with any of
        them are returned instead. FTS5's `bm25` would scan all items with a word before it ranks the first: 150 ms for
        common words in 100,000 items.
        """
        queries = self._transaction.word_queries(self._query.text, self._audiences)
        if not queries.each or not self._audiences:
            return []
        weights = dict[int, float]()
        for numbers in await self._transaction.matching_numbers(queries.each, COMMON):
            if len(numbers) < COMMON:
                for number in numbers:
                    weights[number] = weights.get(number, 0.0) + 1 / (len(numbers) + 1)
        newest = await self._transaction.newest_matching(queries.with_all, self._enough)
        rarest = sorted(weights, key=lambda number: (-weights[number], -number))
        if not rarest:
            rarest = await self._transaction.newest_matching(queries.with_any, self._enough)
        return [*newest, *rarest]

    async def _first_visible(self, numbers: Sequence[int], kinds: Sequence[KnowledgeKind]) -> list[int]:
        """Return the first items of these kinds that have not expired."""
        first: list[int] = []
        condition = f"{self._transaction.without_index}{_VISIBLE} AND number = ANY(%(numbers)s)"
        statement = f"SELECT number FROM {self._transaction.tables}items WHERE {condition}"
        for part in batches(numbers, _MAX_EXAMINED):
            visible = set(await self._numbers(statement, numbers=part, kinds=list(kinds)))
            first += [number for number in part if number in visible]
            if len(first) >= self._enough:
                break
        return first[: self._enough]

    async def _load_candidates(self, column: str, values: Sequence[object]) -> list[Candidate]:
        if not values:
            return []
        own = self._transaction
        rows = await own.rows(
            f"SELECT {SELECTED_COLUMNS}, {own.vector_column} FROM {own.tables}items "
            f"LEFT JOIN {own.tables}vectors ON vectors.number = items.number AND vectors.embedder = %(embedder)s "
            f"WHERE {own.without_index}{_VISIBLE} AND {column} = ANY(%(wanted)s)",
            {**self._visible, "embedder": own.embedder, "wanted": values},
        )
        return [Candidate(row_item(row), own.unpacked_vector(row[-1])) for row in rows]

    async def _numbers(self, statement: str, **values: object) -> list[int]:
        return [number for (number,) in await self._transaction.rows(statement, {**self._visible, **values})]


T = TypeVar("T")

Work = Callable[[KnowledgeTransaction[E]], Coroutine[Any, Any, T]]
"""Work in one transaction. It may wait only for the transaction, because the embedded store runs it without a loop."""

_REINDEX_ITEMS = 128  # items of one batch
_ENCODERS = Threads("knowledge-encoder", 2)


def utc_now() -> datetime:
    return datetime.now(UTC)


class DatabaseStore(ABC, Generic[E]):
    """A `KnowledgeStore`. All backends recall the same items, in the same order and with the same scores."""

    def __init__(self, address: str, embedder: Embedder, now: Callable[[], datetime]) -> None:
        """Open nothing yet. `address` is the file or the server as people see it. `now` returns a time with a zone."""
        self._address = address
        self._embedder = embedder
        self._now = now
        self._has_warned = False

    @abstractmethod
    async def _read(self, work: Work[E, T]) -> T:
        """Run `work` in a transaction that sees one state of the store."""

    @abstractmethod
    async def _write(self, work: Work[E, T]) -> T:
        """Run `work` in a transaction. No other writer runs at the same time."""

    @abstractmethod
    def _encode(self, vectors: Mapping[str, Sequence[float]]) -> dict[str, E]:
        """Return each text in the form that the database stores. 1,000 texts take a second, so a thread does it."""

    async def store(self, items: Sequence[KnowledgeItem]) -> list[Stored]:
        now = self._now()
        arriving = [arriving_item(checked_item(item), now) for item in items]
        if not arriving:
            return []
        known = await self._read(lambda transaction: transaction.stored_items([item.id for item in arriving]))
        if all(arrival_change(known.get(item.id), item) == "unchanged" for item in arriving):
            return [Stored(id=item.id, change="unchanged") for item in arriving]
        # encode all, because an unchanged item may be new once we hold the lock
        encoded = await self._embed_and_encode(arriving)
        return await self._write(lambda transaction: transaction.store_items(arriving, encoded))

    async def recall(self, query: Recall) -> list[Recalled]:
        vector = (await self._embedder.embed([query.text]))[0] if query.text.strip() else None
        now = epoch_micros(self._now())

        async def recall_in(transaction: KnowledgeTransaction[E]) -> list[Recalled]:
            candidates = await KnowledgeSearch(transaction, query, now=now).candidates(vector)
            self._warn_of_missing_vectors(candidates)
            return ranked_items(query, vector, candidates)

        return await self._read(recall_in)

    async def get(self, item_id: str) -> StoredItem | None:
        return (await self._read(lambda transaction: transaction.stored_items([item_id]))).get(item_id)

    def items(self, *, kinds: Sequence[KnowledgeKind] = (), source_prefix: str = "") -> AsyncIterator[StoredItem]:
        return paged_items(
            lambda after: self._read(lambda transaction: transaction.page(kinds, source_prefix, after, PAGE_ITEMS))
        )

    async def forget(self, what: Erasure) -> dict[KnowledgeKind, int]:
        require_named(what)
        return await self._write(lambda transaction: transaction.erase(what))

    async def facts(self) -> StoreFacts:
        now = epoch_micros(self._now())
        return await self._read(lambda transaction: transaction.facts(self._address, now))

    async def reindex(self, progress: Progress) -> int:
        """Recompute the text index and vectors of other embedders, and return the number of items.

        Each batch is a transaction, so the next call continues after an interruption.
        """
        await self._write(lambda transaction: transaction.rebuild_words())
        total = await self._read(lambda transaction: transaction.count_unindexed())
        done = 0
        progress(done, total)
        while part := await self._read(lambda transaction: transaction.unindexed_items(_REINDEX_ITEMS)):
            encoded = await self._embed_and_encode(part)
            await self._write(lambda transaction, p=part, e=encoded: transaction.keep_vectors(p, e))
            done += len(part)
            progress(done, max(done, total))
        return done

    def _warn_of_missing_vectors(self, found: Sequence[Candidate]) -> None:
        """Log a warning if found items have no vectors of the current embedder, but only once."""
        missing = sum(candidate.vector is None for candidate in found)
        if missing and not self._has_warned:
            self._has_warned = True
            _log.warning(
                "the knowledge store %s: %d of %d found items have no vectors of the embedder %s, so they are found by "
                "their words only; make vectors with: orga knowledge reindex",
                *(self._address, missing, len(found), self._embedder.name),
            )

    async def _embed_and_encode(self, items: Sequence[StoredItem]) -> dict[str, E]:
        texts = list(dict.fromkeys(map(searchable_text, items)))
        vectors = dict(zip(texts, await self._embedder.embed(texts), strict=True))
        return await _ENCODERS.run(self._encode, vectors)
