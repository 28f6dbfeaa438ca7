"""The embedded knowledge store: one SQLite file, safe with writers in several processes."""

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import TypeVar

from orga.activities.adapters.knowledge.rows import DamagedItem, MissingVectorsNotice, epoch_micros, row_item
from orga.activities.adapters.knowledge.sqlite.candidates import SqliteSearch, VectorCodes
from orga.activities.adapters.knowledge.sqlite.connections import SqliteConnections
from orga.activities.adapters.knowledge.sqlite.schema import (
    SELECTED_COLUMNS,
    VERSION,
    busy_log_error,
    corrupt_file_error,
    raising_knowledge_errors,
    transaction,
    unreadable_items_error,
)
from orga.activities.adapters.knowledge.sqlite.writing import (
    SqliteVectors,
    erase,
    keep_vectors,
    merge_words,
    read_stored_items,
    store_items,
)
from orga.activities.knowledge.arrival import arrival_change, arriving_item, checked_item
from orga.activities.knowledge.erasing import require_named
from orga.activities.knowledge.ports import PAGE_ITEMS, Embedder, KnowledgeError, Progress, StoreFacts, paged_items
from orga.activities.knowledge.ranking import ranked_items
from orga.activities.knowledge.words import searchable_text
from orga.workflows.types.knowledge import Erasure, KnowledgeItem, KnowledgeKind, Recall, Recalled, Stored, StoredItem

SPAN_ITEMS = 256
"""Item numbers that are scanned in one step."""


def number_spans(connection: sqlite3.Connection) -> list[tuple[int, int]]:
    """Return all item numbers ever used, in spans. A span excludes its first number and includes its last."""
    (last,) = connection.execute("SELECT coalesce(max(seq), 0) FROM sqlite_sequence WHERE name = 'items'").fetchone()
    return [(low, min(low + SPAN_ITEMS, last)) for low in range(0, last, SPAN_ITEMS)]


def readable_items(connection: sqlite3.Connection, low: int, high: int) -> Iterator[StoredItem | None]:
    """Yield the items with numbers above `low` and up to `high`, or None for each that cannot be read.

    The query uses numbers, so that it touches only these items' pages. If it fails, each half is tried separately.
    """
    try:
        rows = connection.execute(f"SELECT {SELECTED_COLUMNS} FROM items WHERE number > ? AND number <= ?", (low, high))
        found = list(map(row_item, rows.fetchall()))
    except (sqlite3.DatabaseError, DamagedItem):
        if high - low == 1:
            yield None
            return
        middle = (low + high) // 2
        yield from readable_items(connection, low, middle)
        yield from readable_items(connection, middle, high)
    else:
        yield from found


def count_lost_items(connection: sqlite3.Connection) -> int:
    """Return how many items cannot be read. It takes some 2 s for 100,000 items."""
    return sum(item is None for span in number_spans(connection) for item in readable_items(connection, *span))


def is_item_wanted(item: StoredItem, kinds: Sequence[KnowledgeKind], source_prefix: str) -> bool:
    """Return whether an item has one of these kinds, or any kind, and a source with this prefix."""
    return (not kinds or item.kind in kinds) and item.provenance.source.startswith(source_prefix)


_WITHOUT_VECTOR = (
    "FROM items LEFT JOIN vectors ON vectors.number = items.number AND vectors.embedder = ? "
    "WHERE vectors.number IS NULL"
)


def read_page(
    connection: sqlite3.Connection, kinds: Sequence[KnowledgeKind], source_prefix: str, after: str, limit: int
) -> list[StoredItem]:
    """Return the next items after an id."""
    condition = f" AND kind IN ({', '.join('?' * len(kinds))})" if kinds else ""
    rows = connection.execute(
        f"SELECT {SELECTED_COLUMNS} FROM items WHERE id > ? AND substr(source, 1, ?) = "
        f"?{condition} ORDER BY id LIMIT ?",
        (after, len(source_prefix), source_prefix, *kinds, limit),
    )
    return list(map(row_item, rows))


def unindexed_items(connection: sqlite3.Connection, embedder: str, limit: int) -> tuple[dict[int, StoredItem], int]:
    """Return the next items without a vector of this embedder, by number, and the number of all such items."""
    (total,) = connection.execute(f"SELECT count(*) {_WITHOUT_VECTOR}", (embedder,)).fetchone()
    rows = connection.execute(
        f"SELECT {SELECTED_COLUMNS}, items.number {_WITHOUT_VECTOR} ORDER BY items.number LIMIT ?", (embedder, limit)
    )
    return {row[-1]: row_item(row) for row in rows}, int(total)


def store_facts(connection: sqlite3.Connection, path: Path, embedder: str, now: int) -> StoreFacts:
    """Check the file, and return the facts about the store.

    Raises:
        KnowledgeError: The file is damaged.
    """
    (verdict,) = connection.execute("PRAGMA quick_check(1)").fetchone()
    if verdict != "ok":
        raise corrupt_file_error(path, str(verdict).replace("\n", " "))
    if lost := count_lost_items(connection):  # SQLite does not look into values
        raise unreadable_items_error(path, lost)
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
        unindexed=unindexed_items(connection, embedder, 0)[1],
        size_bytes=pages * page_bytes,
    )


T = TypeVar("T")

_READER_THREADS = 4
_REINDEX_BATCH = 128

_EMPTY_LOG = "PRAGMA wal_checkpoint(TRUNCATE)"
"""It waits for others like a writer, and then returns whether one was in its way. That is no error."""


def _now() -> datetime:
    return datetime.now(UTC)


class SqliteStore:
    """A `KnowledgeStore` in a file. It has its own threads, so it never blocks the event loop."""

    def __init__(self, path: Path, embedder: Embedder, *, now: Callable[[], datetime] = _now) -> None:
        """Keep the settings. Nothing is opened yet.

        Args:
            path: The file. It and its folder are created when first needed, readable only by their owner.
            embedder: The current embedder. Vectors of another one are ignored until `reindex`.
            now: Returns the time, with a time zone.
        """
        self._path = path
        self._embedder = embedder
        self._now = now
        self._connections = SqliteConnections(path)
        self._codes = VectorCodes(embedder.name)
        self._missing_vectors = MissingVectorsNotice(str(path), embedder.name)
        self._readers = ThreadPoolExecutor(_READER_THREADS, thread_name_prefix="knowledge-reader")
        self._writer = ThreadPoolExecutor(1, thread_name_prefix="knowledge-writer")

    async def store(self, items: Sequence[KnowledgeItem]) -> list[Stored]:
        """Store all items or none, and return what was done with each, in order.

        Raises:
            KnowledgeError: Nothing was stored.
        """
        now = self._now()
        arriving = [arriving_item(checked_item(item), now) for item in items]
        if not arriving:
            return []
        known = await self._read(lambda connection: read_stored_items(connection, [item.id for item in arriving]))
        if all(arrival_change(known.get(item.id), item) == "unchanged" for item in arriving):
            return [Stored(id=item.id, change="unchanged") for item in arriving]
        vectors = await self._vectors(arriving)  # for all, since an unchanged item may be new once we hold the lock
        return await self._write(lambda connection: store_items(connection, arriving, vectors))

    async def recall(self, wish: Recall) -> list[Recalled]:
        """Return the matching items, the best first. A contradicted fact comes after the newer one.

        Raises:
            KnowledgeError: The store cannot be read.
        """
        query = (await self._embedder.embed([wish.text]))[0] if wish.text.strip() else None
        now = epoch_micros(self._now())

        def recalled(connection: sqlite3.Connection) -> list[Recalled]:
            search = SqliteSearch(connection, wish, now=now, embedder=self._embedder.name)
            candidates = search.candidates(self._codes, query)
            self._missing_vectors.log_missing(candidates)
            return ranked_items(wish, query, candidates)

        return await self._read(recalled)

    async def get(self, item_id: str) -> StoredItem | None:
        """Return the item, even if it has expired."""
        return (await self._read(lambda connection: read_stored_items(connection, [item_id]))).get(item_id)

    def items(self, *, kinds: Sequence[KnowledgeKind] = (), source_prefix: str = "") -> AsyncIterator[StoredItem]:
        """Return all items of these kinds, or of all kinds, ordered by id, a page at a time.

        Raises:
            KnowledgeError: The file is damaged. All readable items have been returned before.
        """
        return self._readable_in_spans(kinds, source_prefix)

    async def forget(self, what: Erasure) -> dict[KnowledgeKind, int]:
        """Erase items, and return how many of each kind.

        Raises:
            KnowledgeError: Nothing is named, or nothing was erased.
        """
        require_named(what)
        return await self._write(lambda connection: erase(connection, what))

    async def purge(self) -> None:
        """Remove deleted texts from the text index, which keeps them until it is merged, and from the write-ahead log.

        Other pages are overwritten when they are freed. The index is merged in steps, so that no writer waits long.

        Raises:
            KnowledgeError: Something may remain.
        """
        is_begun = False
        while await self._write(lambda connection, begun=is_begun: merge_words(connection, is_begun=begun)):
            is_begun = True
        is_busy, *_ = await self._run_without_transaction(
            self._writer, lambda connection: connection.execute(_EMPTY_LOG).fetchone()
        )
        if is_busy:
            raise busy_log_error(self._path)

    async def facts(self) -> StoreFacts:
        """Check the file, and return the facts about the store.

        Raises:
            KnowledgeError: The file is damaged.
        """
        now = epoch_micros(self._now())
        return await self._read(lambda connection: store_facts(connection, self._path, self._embedder.name, now))

    async def reindex(self, progress: Progress) -> int:
        """Recompute the text index and vectors of other embedders, and return the number of items.

        Each batch is a transaction, so the next call continues after an interruption.
        """
        await self._write(lambda connection: connection.execute("INSERT INTO words (words) VALUES ('rebuild')"))
        total = (await self._read(lambda connection: unindexed_items(connection, self._embedder.name, 0)))[1]
        done = 0
        progress(done, total)
        while part := (
            await self._read(lambda connection: unindexed_items(connection, self._embedder.name, _REINDEX_BATCH))
        )[0]:
            vectors = await self._vectors(list(part.values()))
            await self._write(lambda connection, p=part, v=vectors: keep_vectors(connection, p, v))
            done += len(part)
            progress(done, max(done, total))
        return done

    async def close(self) -> None:
        """End the threads and close the file."""
        await asyncio.to_thread(self._close)

    def _close(self) -> None:
        self._readers.shutdown()
        self._writer.shutdown()
        self._connections.close()

    async def _vectors(self, items: Sequence[StoredItem]) -> SqliteVectors:
        texts = list(dict.fromkeys(map(searchable_text, items)))
        return SqliteVectors(self._embedder.name, dict(zip(texts, await self._embedder.embed(texts), strict=True)))

    async def _readable_in_spans(self, kinds: Sequence[KnowledgeKind], source_prefix: str) -> AsyncIterator[StoredItem]:
        after = ""
        try:
            async for item in paged_items(lambda after: self._page(kinds, source_prefix, after)):
                yield item
                after = item.id
        except KnowledgeError as error:
            if error.kind != "Corrupt":
                raise
            lost = 0
            for span in await self._read(number_spans):
                for item in await self._read_span(span):
                    if item is None:
                        lost += 1
                    elif is_item_wanted(item, kinds, source_prefix) and item.id > after:
                        yield item
            raise unreadable_items_error(self._path, lost) from error

    async def _read_span(self, span: tuple[int, int]) -> list[StoredItem | None]:
        """Read outside of a transaction, because SQLite cannot end one properly in which it has found damage."""
        return await self._run_without_transaction(
            self._readers, lambda connection: list(readable_items(connection, *span))
        )

    async def _page(self, kinds: Sequence[KnowledgeKind], source_prefix: str, after: str) -> list[StoredItem]:
        return await self._read(lambda connection: read_page(connection, kinds, source_prefix, after, PAGE_ITEMS))

    async def _read(self, work: Callable[[sqlite3.Connection], T]) -> T:
        return await self._run_transaction(self._readers, "BEGIN", work)

    async def _write(self, work: Callable[[sqlite3.Connection], T]) -> T:
        return await self._run_transaction(self._writer, "BEGIN IMMEDIATE", work)

    async def _run_transaction(
        self, threads: ThreadPoolExecutor, begin: str, work: Callable[[sqlite3.Connection], T]
    ) -> T:
        return await asyncio.get_running_loop().run_in_executor(threads, self._in_transaction, begin, work)

    async def _run_without_transaction(self, threads: ThreadPoolExecutor, work: Callable[[sqlite3.Connection], T]) -> T:
        def done() -> T:
            with raising_knowledge_errors(self._path):
                return work(self._connections.current())

        return await asyncio.get_running_loop().run_in_executor(threads, done)

    def _in_transaction(self, begin: str, work: Callable[[sqlite3.Connection], T]) -> T:
        connection = self._connections.current()
        with raising_knowledge_errors(self._path), transaction(connection, begin):
            return work(connection)
