"""The embedded knowledge store: one SQLite file, safe under writers of several processes."""

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import TypeVar

from orga.activities.adapters.knowledge.embedder_changes import MissingVectorsNotice
from orga.activities.adapters.knowledge.rows import DamagedItem, epoch_micros, row_item
from orga.activities.adapters.knowledge.sqlite.candidates import SqliteSearch, VectorCodes
from orga.activities.adapters.knowledge.sqlite.connections import SqliteConnections
from orga.activities.adapters.knowledge.sqlite.failures import (
    busy_log_error,
    corrupt_file_error,
    raising_knowledge_errors,
    unreadable_items_error,
)
from orga.activities.adapters.knowledge.sqlite.schema import SELECTED_COLUMNS, VERSION, transaction
from orga.activities.adapters.knowledge.sqlite.writing import (
    SqliteVectors,
    erase,
    keep_vectors,
    merge_words,
    read_stored_items,
    store_items,
)
from orga.activities.knowledge.arrival import arrival_change, arriving_item, checked_item
from orga.activities.knowledge.batches import PAGE_ITEMS, paged_items
from orga.activities.knowledge.erasing import require_named
from orga.activities.knowledge.ports import Embedder, KnowledgeError, Progress, StoreFacts
from orga.activities.knowledge.ranking import ranked_items
from orga.activities.knowledge.words import searchable_text
from orga.workflows.types.knowledge import Erasure, KnowledgeItem, KnowledgeKind, Recall, Recalled, Stored, StoredItem

SPAN_ITEMS = 256
"""Numbers of items that are looked through at once."""


def number_spans(connection: sqlite3.Connection) -> list[tuple[int, int]]:
    """Return the numbers that items have ever had, in parts: each from behind its first to its last."""
    (last,) = connection.execute("SELECT coalesce(max(seq), 0) FROM sqlite_sequence WHERE name = 'items'").fetchone()
    return [(low, min(low + SPAN_ITEMS, last)) for low in range(0, last, SPAN_ITEMS)]


def readable_items(connection: sqlite3.Connection, low: int, high: int) -> Iterator[StoredItem | None]:
    """Yield the items with numbers behind the one up to the other, None for each that cannot be read.

    They are sought by their numbers, so that no page but their own is touched, and by halves where one of them fails.
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
    """Return how many items cannot be read: some 2 s where there are 100,000."""
    return sum(item is None for span in number_spans(connection) for item in readable_items(connection, *span))


def is_item_wanted(item: StoredItem, kinds: Sequence[KnowledgeKind], source_prefix: str) -> bool:
    """Return whether an item is of these kinds (any where none is named), and from a source that begins so."""
    return (not kinds or item.kind in kinds) and item.provenance.source.startswith(source_prefix)


_WITHOUT_VECTOR = (
    "FROM items LEFT JOIN vectors ON vectors.number = items.number AND vectors.embedder = ? "
    "WHERE vectors.number IS NULL"
)


def read_page(
    connection: sqlite3.Connection, kinds: Sequence[KnowledgeKind], source_prefix: str, after: str, limit: int
) -> list[StoredItem]:
    """Return the next items behind an id."""
    condition = f" AND kind IN ({', '.join('?' * len(kinds))})" if kinds else ""
    rows = connection.execute(
        f"SELECT {SELECTED_COLUMNS} FROM items WHERE id > ? AND substr(source, 1, ?) = "
        f"?{condition} ORDER BY id LIMIT ?",
        (after, len(source_prefix), source_prefix, *kinds, limit),
    )
    return list(map(row_item, rows))


def unindexed_items(connection: sqlite3.Connection, embedder: str, limit: int) -> tuple[dict[int, StoredItem], int]:
    """Return the next items by their numbers that have no vector of this embedder, and how many there are in all."""
    (total,) = connection.execute(f"SELECT count(*) {_WITHOUT_VECTOR}", (embedder,)).fetchone()
    rows = connection.execute(
        f"SELECT {SELECTED_COLUMNS}, items.number {_WITHOUT_VECTOR} ORDER BY items.number LIMIT ?", (embedder, limit)
    )
    return {row[-1]: row_item(row) for row in rows}, int(total)


def store_facts(connection: sqlite3.Connection, path: Path, embedder: str, now: int) -> StoreFacts:
    """Return what a sound file holds.

    Raises:
        KnowledgeError: It is damaged.
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
"""Waits for others as a writer does, then says whether one was in its way: it is no error."""


def _now() -> datetime:
    return datetime.now(UTC)


class SqliteStore:
    """A `KnowledgeStore` in a file. Its threads are its own: the event loop is never held up."""

    def __init__(self, path: Path, embedder: Embedder, *, now: Callable[[], datetime] = _now) -> None:
        """Open nothing yet.

        Args:
            path: Of the file. It and its folder are made at the first need, for their owner alone.
            embedder: Vectors of another one are left aside until `reindex`.
            now: The time, aware.
        """
        self._path = path
        self._embedder = embedder
        self._now = now
        self._connections = SqliteConnections(path)
        self._codes = VectorCodes(embedder.name)
        self._left_aside = MissingVectorsNotice(str(path), embedder.name)
        self._readers = ThreadPoolExecutor(_READER_THREADS, thread_name_prefix="knowledge-reader")
        self._writer = ThreadPoolExecutor(1, thread_name_prefix="knowledge-writer")

    async def store(self, items: Sequence[KnowledgeItem]) -> list[Stored]:
        """Store all of them or none, and return what became of each, in order.

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
        vectors = await self._vectors(arriving)  # of all: what is unchanged now may be news once the store is ours
        return await self._write(lambda connection: store_items(connection, arriving, vectors))

    async def recall(self, wish: Recall) -> list[Recalled]:
        """Return what fits, the best first; a fact that a newer one contradicts stands behind that one.

        Raises:
            KnowledgeError: The store cannot be read.
        """
        query = (await self._embedder.embed([wish.text]))[0] if wish.text.strip() else None
        now = epoch_micros(self._now())

        def recalled(connection: sqlite3.Connection) -> list[Recalled]:
            search = SqliteSearch(connection, wish, now=now, embedder=self._embedder.name)
            candidates = search.candidates(self._codes, query)
            self._left_aside.notice(candidates)
            return ranked_items(wish, query, candidates)

        return await self._read(recalled)

    async def get(self, item_id: str) -> StoredItem | None:
        """Return the item, expired or not."""
        return (await self._read(lambda connection: read_stored_items(connection, [item_id]))).get(item_id)

    def items(self, *, kinds: Sequence[KnowledgeKind] = (), source_prefix: str = "") -> AsyncIterator[StoredItem]:
        """Return all items of these kinds (all kinds where none is named), by id, a page at a time.

        Raises:
            KnowledgeError: The file is damaged; all that can be read of it has been returned before.
        """
        return self._readable_in_spans(kinds, source_prefix)

    async def forget(self, what: Erasure) -> dict[KnowledgeKind, int]:
        """Erase them, and return how many went.

        Raises:
            KnowledgeError: Nothing is named, or nothing was erased.
        """
        require_named(what)
        return await self._write(lambda connection: erase(connection, what))

    async def purge(self) -> None:
        """Take what is gone out of the text index too, which keeps it until it is merged, and out of the log of writes.

        Other pages are wiped as they are freed. A part of the index at a time is merged, so that no writer waits long.

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
        """Return what the store holds, once the file has been checked.

        Raises:
            KnowledgeError: It is damaged.
        """
        now = epoch_micros(self._now())
        return await self._read(lambda connection: store_facts(connection, self._path, self._embedder.name, now))

    async def reindex(self, progress: Progress) -> int:
        """Make the text index and vectors of another embedder anew, and return of how many items.

        Each part is a transaction: stopped at any time, the next call goes on from there.
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
        """Let go of the threads and the file."""
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
        """Look outside of a transaction: SQLite ends none well in which it has met damage."""
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
        """Work in no transaction."""

        def done() -> T:
            with raising_knowledge_errors(self._path):
                return work(self._connections.current())

        return await asyncio.get_running_loop().run_in_executor(threads, done)

    def _in_transaction(self, begin: str, work: Callable[[sqlite3.Connection], T]) -> T:
        connection = self._connections.current()
        with raising_knowledge_errors(self._path), transaction(connection, begin):
            return work(connection)
