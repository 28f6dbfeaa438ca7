"""The embedded knowledge store: one SQLite file, safe with writers in several processes."""

import asyncio
import os
import sqlite3
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext, suppress
from datetime import datetime
from pathlib import Path
from threading import Lock, local
from time import monotonic, sleep
from typing import TypeVar

from orga.activities.adapters.knowledge.rows import DamagedItem, row_item
from orga.activities.adapters.knowledge.sqlite.schema import (
    busy_log_error,
    corrupt_file_error,
    migrate,
    raising_knowledge_errors,
    transaction,
    unreadable_items_error,
)
from orga.activities.adapters.knowledge.sqlite.transaction import (
    EncodedVector,
    SqliteTransaction,
    VectorCodes,
    run_without_waiting,
)
from orga.activities.adapters.knowledge.store import DatabaseStore, Work, utc_now
from orga.activities.adapters.knowledge.transactions import SELECTED_COLUMNS
from orga.activities.knowledge.ports import Embedder, KnowledgeError, StoreFacts
from orga.activities.knowledge.vectors import code_bytes, pack_vector, vector_code
from orga.workflows.types.knowledge import KnowledgeKind, StoredItem

WAIT_S = 30.0
"""Seconds that a writer waits for another writer of any process."""


class SqliteConnections:
    def __init__(self, path: Path) -> None:
        self._path = path
        self._own = local()
        self._all: list[sqlite3.Connection] = []
        self._lock = Lock()
        self._is_ready = False

    def current(self) -> sqlite3.Connection:
        """Return this thread's connection. Raise KnowledgeError if the file cannot be opened, or is no store."""
        known: sqlite3.Connection | None = getattr(self._own, "connection", None)
        if known is None:
            with raising_knowledge_errors(self._path):
                known = self._own.connection = self._open()
        return known

    def close(self) -> None:
        """Close all connections. Call it when no thread uses one."""
        with self._lock:
            for connection in self._all:
                with suppress(sqlite3.Error):
                    connection.close()
            self._all.clear()

    def _open(self) -> sqlite3.Connection:
        with self._lock:
            if not self._is_ready:
                _make_private(self._path)
            connection = sqlite3.connect(self._path, timeout=WAIT_S, isolation_level=None, check_same_thread=False)
            try:
                connection.execute("PRAGMA foreign_keys = ON")
                connection.execute("PRAGMA secure_delete = ON")  # overwrites forgotten items
                if not self._is_ready:
                    migrate(connection, self._path)
                    _enable_write_ahead(connection)
                    self._is_ready = True
            except BaseException:
                connection.close()
                raise
            self._all.append(connection)
            return connection


def _make_private(path: Path) -> None:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    if not path.exists():
        os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))


def _enable_write_ahead(connection: sqlite3.Connection) -> None:
    """Let readers read while one writes. SQLite does not wait for others that are opening a new file, so this does."""
    until = monotonic() + WAIT_S
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or monotonic() > until:
                raise
            sleep(0.02)
        else:
            return


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


MERGE_PAGES = 500
"""Pages of the text index that one step merges, in some 40 ms."""


def merge_words(connection: sqlite3.Connection, *, is_begun: bool) -> bool:
    """Merge a part of the text index, which drops deleted texts, and return whether there is more to merge.

    Args:
        is_begun: True after a first call, which made FTS5 merge all parts into one.
    """
    before = connection.total_changes
    pages = MERGE_PAGES if is_begun else -MERGE_PAGES
    connection.execute("INSERT INTO words (words, rank) VALUES ('merge', ?)", (pages,))
    return connection.total_changes - before >= 2  # FTS5's rule for "merge": fewer changes mean nothing was merged


def check_file(connection: sqlite3.Connection, path: Path) -> None:
    """Raise KnowledgeError if the file or an item is damaged."""
    (verdict,) = connection.execute("PRAGMA quick_check(1)").fetchone()
    if verdict != "ok":
        raise corrupt_file_error(path, str(verdict).replace("\n", " "))
    # SQLite does not look into values. This takes some 2 s for 100,000 items.
    if lost := sum(item is None for span in number_spans(connection) for item in readable_items(connection, *span)):
        raise unreadable_items_error(path, lost)


T = TypeVar("T")

_READER_THREADS = 4

_EMPTY_LOG = "PRAGMA wal_checkpoint(TRUNCATE)"
"""It waits for others like a writer, and then returns whether one was in its way. That is no error."""


class SqliteStore(DatabaseStore[EncodedVector]):
    """A `KnowledgeStore` in a file. It has its own threads, so it never blocks the event loop.

    The file and its folder are created when first needed, readable only by their owner.
    """

    def __init__(self, path: Path, embedder: Embedder, *, now: Callable[[], datetime] = utc_now) -> None:
        super().__init__(str(path), embedder, now)
        self._path = path
        self._connections = SqliteConnections(path)
        self._codes = VectorCodes(embedder.name)
        self._readers = ThreadPoolExecutor(_READER_THREADS, thread_name_prefix="knowledge-reader")
        self._writer = ThreadPoolExecutor(1, thread_name_prefix="knowledge-writer")

    def items(self, *, kinds: Sequence[KnowledgeKind] = (), source_prefix: str = "") -> AsyncIterator[StoredItem]:
        """Return the items as the base class does. Raise KnowledgeError for damage, after all readable items."""
        return self._readable_in_spans(kinds, source_prefix)

    async def purge(self) -> None:
        """Remove deleted texts from the text index, which keeps them until it is merged, and from the write-ahead log.

        Other pages are overwritten when they are freed. The index is merged in steps, so that no writer waits long.
        """
        is_begun = False
        while await self._in_thread(
            self._writer, lambda connection, begun=is_begun: merge_words(connection, is_begun=begun), "BEGIN IMMEDIATE"
        ):
            is_begun = True
        is_busy, *_ = await self._in_thread(self._writer, lambda connection: connection.execute(_EMPTY_LOG).fetchone())
        if is_busy:
            raise busy_log_error(self._path)

    async def facts(self) -> StoreFacts:
        """Return the facts about the store. Raise KnowledgeError if the file is damaged."""
        await self._in_thread(self._readers, lambda connection: check_file(connection, self._path), "BEGIN")
        return await super().facts()

    async def close(self) -> None:
        await asyncio.to_thread(self._close)

    def _close(self) -> None:
        self._readers.shutdown()
        self._writer.shutdown()
        self._connections.close()

    async def _read(self, work: Work[EncodedVector, T]) -> T:
        return await self._in_thread(self._readers, lambda connection: self._run_work(connection, work), "BEGIN")

    async def _write(self, work: Work[EncodedVector, T]) -> T:
        return await self._in_thread(
            self._writer, lambda connection: self._run_work(connection, work), "BEGIN IMMEDIATE"
        )

    def _encode(self, vectors: Mapping[str, Sequence[float]]) -> dict[str, EncodedVector]:
        return {text: (code_bytes(vector_code(vector)), pack_vector(vector)) for text, vector in vectors.items()}

    async def _readable_in_spans(self, kinds: Sequence[KnowledgeKind], source_prefix: str) -> AsyncIterator[StoredItem]:
        after = ""
        try:
            async for item in super().items(kinds=kinds, source_prefix=source_prefix):
                yield item
                after = item.id
        except KnowledgeError as error:
            if error.kind != "Corrupt":
                raise
            lost = 0
            for span in await self._in_thread(self._readers, number_spans, "BEGIN"):
                # No transaction, because SQLite cannot end one properly in which it has found damage.
                read_span = await self._in_thread(
                    self._readers, lambda connection, span=span: list(readable_items(connection, *span))
                )
                for item in read_span:
                    if item is None:
                        lost += 1
                    elif (
                        item.id > after
                        and (not kinds or item.kind in kinds)
                        and item.provenance.source.startswith(source_prefix)
                    ):
                        yield item
            raise unreadable_items_error(self._path, lost) from error

    async def _in_thread(
        self, threads: ThreadPoolExecutor, work: Callable[[sqlite3.Connection], T], begin: str | None = None
    ) -> T:
        """Run `work` on the connection of one of these threads, in a transaction if `begin` says how it begins."""

        def result() -> T:
            connection = self._connections.current()
            with raising_knowledge_errors(self._path), transaction(connection, begin) if begin else nullcontext():
                return work(connection)

        return await asyncio.get_running_loop().run_in_executor(threads, result)

    def _run_work(self, connection: sqlite3.Connection, work: Work[EncodedVector, T]) -> T:
        return run_without_waiting(work(SqliteTransaction(connection, self._codes)))
