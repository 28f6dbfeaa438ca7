"""The embedded knowledge store: one SQLite file, safe with writers in several processes."""

import asyncio
import re
import sqlite3
from array import array
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext, suppress
from datetime import datetime
from functools import partial
from heapq import nsmallest
from pathlib import Path
from threading import Lock, local
from time import monotonic, sleep
from typing import Any, TypeVar

from orga.activities.adapters.knowledge.sqlite.schema import (
    VERSION,
    corrupt_file_error,
    migrate,
    raising_knowledge_errors,
    transaction,
    unreadable_items_error,
)
from orga.activities.adapters.knowledge.store import DatabaseStore, Work, utc_now
from orga.activities.adapters.knowledge.transactions import (
    COLUMNS,
    SELECTED_COLUMNS,
    UNTAINTED,
    DamagedItem,
    KnowledgeTransaction,
    Rows,
    Values,
    WordQueries,
    item_row,
    row_item,
)
from orga.activities.knowledge.arrival import MAX_SETTLED_FACTS
from orga.activities.knowledge.ports import Embedder, KnowledgeError, StoreFacts
from orga.activities.knowledge.vectors import MAX_BITS, vector_code
from orga.activities.knowledge.words import query_terms, searchable_text
from orga.workflows.types.knowledge import Erasure, KnowledgeKind, StoredItem

T = TypeVar("T")


class _Bucket:
    """The items of one kind and one audience, in two lists, which are quick to scan."""

    def __init__(self) -> None:
        self.numbers: list[int] = []
        """The numbers of the items in the database."""
        self.codes: list[int] = []
        """The codes of their vectors (`vector_code`), in the same order."""
        self._indexes: dict[int, int] = {}
        """The index in both lists, by number."""

    def add(self, number: int, code: int) -> None:
        index = self._indexes.get(number)
        if index is not None:
            self.codes[index] = code
            return
        self._indexes[number] = len(self.codes)
        self.numbers.append(number)
        self.codes.append(code)

    def drop(self, number: int) -> None:
        index, last, last_code = self._indexes.pop(number), self.numbers.pop(), self.codes.pop()
        if last != number:  # the last entry moves to the free index
            self.numbers[index], self.codes[index], self._indexes[last] = last, last_code, index

    def nearest(self, code: int, limit: int) -> list[tuple[int, int]]:
        """Return distance and number of the `limit` nearest items, and of others as near as the last of these."""
        distances = [(code ^ other).bit_count() for other in self.codes]
        furthest = nsmallest(limit, distances)[-1] if distances else 0
        pairs = zip(distances, self.numbers, strict=True)
        return [(distance, number) for distance, number in pairs if distance <= furthest]


class VectorCodes:
    """The codes of all vectors of one embedder, in memory. A search scans only the audiences and kinds that it needs.

    100,000 codes take about 15 MB. A scan of them takes about 15 ms.
    """

    def __init__(self, embedder: str) -> None:
        self.embedder = embedder
        self._lock = Lock()
        # The counters of the file when it was last read. `changed` grows with each write, `erased` with each erasure.
        self._changed = -1
        self._erased = -1
        self._buckets: dict[tuple[str, str], _Bucket] = {}
        """Buckets by audience and kind."""
        self._key_of: dict[int, tuple[str, str]] = {}
        """The key of an item's bucket, by the item's number."""
        self._expiring: dict[int, int] = {}
        """The time in microseconds at which an item expires, by its number."""

    def nearest(
        self,
        connection: sqlite3.Connection,
        vector: Sequence[float],
        audiences: Sequence[str],
        kinds: Sequence[str],
        *,
        now: int,
        limit: int,
    ) -> list[int]:
        """Return the numbers of the nearest items of these audiences and kinds that have not expired.

        Args:
            connection: In a transaction, so that all reads are consistent.
            now: The time in microseconds.
        """
        code = vector_code(vector)
        with self._lock:
            self._refresh(connection)
            keys = [(audience, kind) for audience in audiences for kind in kinds]
            buckets = [self._buckets[key] for key in keys if key in self._buckets]
            expired = {number for number, time in self._expiring.items() if time <= now}
            near = [pair for bucket in buckets for pair in bucket.nearest(code, limit + len(expired))]
        return [number for _, number in sorted(near) if number not in expired][:limit]

    def _refresh(self, connection: sqlite3.Connection) -> None:
        counters: dict[str, int] = dict(connection.execute("SELECT name, value FROM counters"))
        if counters["erased"] != self._erased:
            self._buckets.clear()
            self._key_of.clear()
            self._expiring.clear()
            self._changed = -1
        if counters["changed"] != self._changed:
            rows = connection.execute(
                "SELECT items.number, place, kind, expires_at, code FROM items CROSS JOIN vectors USING (number) "
                "WHERE changed > ? AND embedder = ?",
                (self._changed, self.embedder),
            )
            for number, audience, kind, expires_at, code in rows:  # the column `place` has the audience
                self._add_code(number, (audience, kind), expires_at, int.from_bytes(code, "big"))
        self._changed, self._erased = counters["changed"], counters["erased"]

    def _add_code(self, number: int, key: tuple[str, str], expires_at: int | None, code: int) -> None:
        before = self._key_of.get(number)
        if before is not None and before != key:
            self._buckets[before].drop(number)
        self._key_of[number] = key
        self._buckets.setdefault(key, _Bucket()).add(number, code)
        if expires_at is None:
            self._expiring.pop(number, None)
        else:
            self._expiring[number] = expires_at


_EncodedVector = tuple[bytes, bytes]
"""A vector in the form that the file stores: its code and its numbers."""

_INSERT = (
    f"INSERT INTO items ({', '.join(COLUMNS)}, changed) VALUES ({', '.join('?' * (len(COLUMNS) + 1))}) "
    f"ON CONFLICT (id) DO UPDATE SET {', '.join(f'{name} = excluded.{name}' for name in (*COLUMNS[1:], 'changed'))}"
)
_GIVE_VECTOR = (
    "INSERT OR REPLACE INTO vectors (number, embedder, code, vector) SELECT number, ?, ?, ? FROM items WHERE id = ?"
)
_VALUE = re.compile(r"(?P<list>= ANY\()?%\((?P<name>\w+)\)s(?(list)\))")
"""A value in a shared statement: `%(name)s`, or `= ANY(%(name)s)` for a list. SQLite takes `?`, or `IN (?, ?)`."""


class SqliteTransaction(KnowledgeTransaction[_EncodedVector]):
    """A transaction on one connection. Its methods never wait, so that a thread can run them without an event loop."""

    backend = "sqlite"
    schema_version = VERSION
    tables = ""
    vector_column = "vectors.vector"
    byte_order = ""
    without_index = "+"

    def __init__(self, connection: sqlite3.Connection, codes: VectorCodes) -> None:
        super().__init__(codes.embedder)
        self._connection = connection
        self._codes = codes

    async def rows(self, statement: str, values: Values | None = None) -> Rows:
        ordered_values: list[Any] = []

        def placeholder(match: re.Match[str]) -> str:
            value: Any = (values or {})[match["name"]]
            ordered_values.extend(value if match["list"] else [value])
            return f"IN ({', '.join('?' * len(value))})" if match["list"] else "?"

        return self._connection.execute(_VALUE.sub(placeholder, statement), ordered_values).fetchall()

    async def newest_facts(self, claims: Sequence[str]) -> Rows:
        rows: Rows = []
        for claim in claims:
            for condition, limit in (("", MAX_SETTLED_FACTS), (f"AND taint = '{UNTAINTED}'", 1)):
                rows += self._connection.execute(
                    f"SELECT {SELECTED_COLUMNS}, number FROM items WHERE claim = ? AND claim != '' {condition} "
                    "ORDER BY stored_at DESC, number DESC LIMIT ?",
                    (claim, limit),
                )
        return rows

    async def write_items(self, items: Sequence[StoredItem], encoded: Mapping[str, _EncodedVector]) -> None:
        changed = self._next_count("changed")
        self._connection.executemany(_INSERT, [(*item_row(item), changed) for item in items])
        self._replace_vectors(items, encoded)

    async def give_vectors(self, items: Sequence[StoredItem], encoded: Mapping[str, _EncodedVector]) -> None:
        changed = self._next_count("changed")
        changes = [(changed, item.id) for item in items]
        self._connection.executemany("UPDATE items SET changed = ? WHERE id = ?", changes)
        self._replace_vectors(items, encoded)

    async def erase(self, what: Erasure) -> dict[KnowledgeKind, int]:
        counts = await super().erase(what)
        if counts:
            self._next_count("erased")
        return counts

    async def rebuild_words(self) -> None:
        self._connection.execute("INSERT INTO words (words) VALUES ('rebuild')")

    async def size_bytes(self) -> int:
        [(size,)] = await self.rows("SELECT page_count * page_size FROM pragma_page_count, pragma_page_size")
        return int(size)

    def unpacked_vector(self, value: bytes | None) -> Sequence[float] | None:
        try:
            return None if value is None else array("f", value)
        except (ValueError, TypeError) as error:
            raise DamagedItem("a vector in it has no valid form") from error

    async def nearest_numbers(self, vector: Sequence[float], visible: Mapping[str, Any], limit: int) -> list[int]:
        return self._codes.nearest(self._connection, vector, **visible, limit=limit)

    def word_queries(self, text: str, audiences: Sequence[str]) -> WordQueries:
        quoted = [f'"{term}"' for term in query_terms(text)]
        of_audiences = " OR ".join(f'"{audience}"' for audience in audiences)

        def query(words: str) -> str:
            return f"{{text labels}} : ({words}) AND place : ({of_audiences})"

        return WordQueries(list(map(query, quoted)), query(" AND ".join(quoted)), query(" OR ".join(quoted)))

    async def matching_numbers(self, queries: Sequence[str], limit: int) -> list[list[int]]:
        return [self._numbers(query, "LIMIT ?", limit) for query in queries]

    async def newest_matching(self, query: str, limit: int) -> list[int]:
        return self._numbers(query, "ORDER BY rowid DESC LIMIT ?", limit)

    def _numbers(self, query: str, order_and_limit: str, limit: int) -> list[int]:
        statement = f"SELECT rowid FROM words WHERE words MATCH ? {order_and_limit}"
        return [number for (number,) in self._connection.execute(statement, (query, limit))]

    def _replace_vectors(self, items: Sequence[StoredItem], encoded: Mapping[str, _EncodedVector]) -> None:
        vectors = [(self.embedder, *encoded[searchable_text(item)], item.id) for item in items]
        self._connection.executemany(_GIVE_VECTOR, vectors)

    def _next_count(self, name: str) -> int:
        statement = "UPDATE counters SET value = value + 1 WHERE name = ? RETURNING value"
        [(value,)] = self._connection.execute(statement, (name,)).fetchall()
        return int(value)


def run_without_waiting(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine that waits for nothing, and return its result."""
    try:
        work.send(None)
    except StopIteration as end:
        return end.value
    raise RuntimeError("a transaction of the embedded store cannot wait")


WAIT_S = 30.0
"""Seconds that a writer waits for another writer of any process."""


class SqliteConnections:
    def __init__(self, path: Path) -> None:
        self._path = path
        self._own = local()  # holds each thread's connection
        self._all: list[sqlite3.Connection] = []
        self._lock = Lock()
        self._is_ready = False

    def current(self) -> sqlite3.Connection:
        """Return this thread's connection. Raise KnowledgeError if the file cannot be opened, or is no store."""
        connection: sqlite3.Connection | None = getattr(self._own, "connection", None)
        if connection is None:
            with raising_knowledge_errors(self._path):
                connection = self._own.connection = self._open()
        return connection

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
                self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                if not self._path.exists():
                    self._path.touch(0o600)
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


def _enable_write_ahead(connection: sqlite3.Connection) -> None:
    """Let readers read during a write. SQLite does not wait if another process opens a new file, so we try again."""
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
        items = list(map(row_item, rows.fetchall()))
    except (sqlite3.DatabaseError, DamagedItem):
        if high - low == 1:
            yield None
            return
        middle = (low + high) // 2
        yield from readable_items(connection, low, middle)
        yield from readable_items(connection, middle, high)
    else:
        yield from items


MERGE_PAGES = 500
"""Pages of the text index that one step merges, in about 40 ms."""


def merge_words(connection: sqlite3.Connection, *, is_begun: bool) -> bool:
    """Merge a part of the text index, which drops deleted texts, and return whether there is more to merge.

    `is_begun` is False for the first call, which passes a negative number. That makes FTS5 begin to merge all parts
    into one. Later calls continue the merge.
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
    # SQLite does not look into values. This takes about 2 s for 100,000 items.
    if lost := sum(item is None for span in number_spans(connection) for item in readable_items(connection, *span)):
        raise unreadable_items_error(path, lost)


_READER_THREADS = 4

_EMPTY_LOG = "PRAGMA wal_checkpoint(TRUNCATE)"
"""Empties the write-ahead log. It waits for others like a writer. If it waits in vain, it returns 1 and no error."""


class SqliteStore(DatabaseStore[_EncodedVector]):
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

    async def purge(self) -> None:
        """Remove deleted texts from the text index, which keeps them until it is merged, and from the write-ahead log.

        Other pages are overwritten when they are freed. The index is merged in steps, so that no writer waits long.
        """
        has_more = await self._in_thread(self._writer, partial(merge_words, is_begun=False), "BEGIN IMMEDIATE")
        while has_more:
            has_more = await self._in_thread(self._writer, partial(merge_words, is_begun=True), "BEGIN IMMEDIATE")
        is_busy, *_ = await self._in_thread(self._writer, lambda connection: connection.execute(_EMPTY_LOG).fetchone())
        if is_busy:
            raise KnowledgeError(
                f"what was forgotten or replaced is recalled no more, but may remain in {self._path}-wal: another "
                "process reads the knowledge store; give the same command again once that one is done",
                kind="Busy",
                retryable=True,
            )

    async def facts(self) -> StoreFacts:
        await self._in_thread(self._readers, lambda connection: check_file(connection, self._path), "BEGIN")
        return await super().facts()

    async def close(self) -> None:
        await asyncio.to_thread(self._close)

    def _close(self) -> None:
        self._readers.shutdown()
        self._writer.shutdown()
        self._connections.close()

    async def _read(self, work: Work[_EncodedVector, T]) -> T:
        return await self._in_thread(self._readers, lambda connection: self._run_work(connection, work), "BEGIN")

    async def _write(self, work: Work[_EncodedVector, T]) -> T:
        return await self._in_thread(
            self._writer, lambda connection: self._run_work(connection, work), "BEGIN IMMEDIATE"
        )

    def _encode(self, vectors: Mapping[str, Sequence[float]]) -> dict[str, _EncodedVector]:
        codes = {text: vector_code(vector).to_bytes(MAX_BITS // 8, "big") for text, vector in vectors.items()}
        return {text: (code, array("f", vectors[text]).tobytes()) for text, code in codes.items()}

    async def items(self, *, kinds: Sequence[KnowledgeKind] = (), source_prefix: str = "") -> AsyncIterator[StoredItem]:
        """Yield the items as the base class does. Raise KnowledgeError for damage, after all readable items."""
        last_id = ""  # the base class yields by id, so all later ids are missing after an error
        try:
            async for item in super().items(kinds=kinds, source_prefix=source_prefix):
                yield item
                last_id = item.id
        except KnowledgeError as error:
            if error.kind != "Corrupt":
                raise
            lost = 0
            for span in await self._in_thread(self._readers, number_spans, "BEGIN"):
                # No transaction, because SQLite cannot properly end one after it has found damage in it.
                items = await self._in_thread(
                    self._readers, lambda connection, span=span: list(readable_items(connection, *span))
                )
                lost += items.count(None)
                for item in filter(None, items):
                    is_of_kinds = not kinds or item.kind in kinds
                    if is_of_kinds and item.id > last_id and item.provenance.source.startswith(source_prefix):
                        yield item
            raise unreadable_items_error(self._path, lost) from error

    async def _in_thread(
        self, threads: ThreadPoolExecutor, work: Callable[[sqlite3.Connection], T], begin: str | None = None
    ) -> T:
        """Run `work` on the connection of one of these threads. With `begin`, it runs in a transaction."""

        def result() -> T:
            connection = self._connections.current()
            with raising_knowledge_errors(self._path), transaction(connection, begin) if begin else nullcontext():
                return work(connection)

        return await asyncio.get_running_loop().run_in_executor(threads, result)

    def _run_work(self, connection: sqlite3.Connection, work: Work[_EncodedVector, T]) -> T:
        return run_without_waiting(work(SqliteTransaction(connection, self._codes)))
