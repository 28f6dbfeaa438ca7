"""One transaction of the embedded store, and the codes of its vectors in memory."""

import re
import sqlite3
from collections.abc import Coroutine, Mapping, Sequence
from heapq import nsmallest
from threading import Lock
from typing import Any, TypeVar

from orga.activities.adapters.knowledge.rows import COLUMNS, UNTAINTED, DamagedItem, item_row
from orga.activities.adapters.knowledge.sqlite.schema import VERSION
from orga.activities.adapters.knowledge.transactions import SELECTED_COLUMNS, KnowledgeTransaction, Rows, Values
from orga.activities.knowledge.arrival import MAX_SETTLED_FACTS
from orga.activities.knowledge.vectors import unpack_vector, vector_code
from orga.activities.knowledge.words import query_terms, searchable_text
from orga.workflows.types.knowledge import Erasure, KnowledgeKind, StoredItem


class _Bucket:
    """The codes of one kind at one place, in two lists that are quick to scan."""

    def __init__(self) -> None:
        self.numbers: list[int] = []
        self.codes: list[int] = []
        self._at: dict[int, int] = {}

    def add(self, number: int, code: int) -> None:
        at = self._at.setdefault(number, len(self.codes))
        if at < len(self.codes):
            self.codes[at] = code
        else:
            self.numbers.append(number)
            self.codes.append(code)

    def drop(self, number: int) -> None:
        at, last = self._at.pop(number), self.numbers[-1]
        self.codes[at], self.numbers[at] = self.codes[-1], last
        if last != number:
            self._at[last] = at
        del self.codes[-1], self.numbers[-1]

    def nearest(self, code: int, limit: int) -> list[tuple[int, int]]:
        """Return the distances and numbers of the nearest: at least `limit`, or more if several are equally far."""
        distances = [(code ^ other).bit_count() for other in self.codes]
        furthest = nsmallest(limit, distances)[-1] if distances else 0
        return [(distance, self.numbers[at]) for at, distance in enumerate(distances) if distance <= furthest]


class VectorCodes:
    """The codes of one embedder by place and kind, so that codes that a reader cannot see are not scanned.

    100,000 codes take some 15 MB and 15 ms to scan.
    """

    def __init__(self, embedder: str) -> None:
        self.embedder = embedder
        self._lock = Lock()
        self._changed = -1
        self._erased = -1
        self._buckets: dict[tuple[str, str], _Bucket] = {}
        self._bucket_of: dict[int, tuple[str, str]] = {}
        self._expiring: dict[int, int] = {}

    def nearest(
        self,
        connection: sqlite3.Connection,
        vector: Sequence[float],
        places: Sequence[str],
        kinds: Sequence[str],
        *,
        now: int,
        limit: int,
    ) -> list[int]:
        """Return the numbers of the nearest items at these places and of these kinds that have not expired.

        Args:
            connection: In a transaction, so that all reads are consistent.
            vector: The query's vector.
            places: The places that the reader sees.
            kinds: The wanted kinds.
            now: The time in microseconds.
            limit: The most items to return.
        """
        code = vector_code(vector)
        with self._lock:
            self._refresh(connection)
            found = [self._buckets.get((place, kind)) for place in places for kind in kinds]
            expired = {number for number, time in self._expiring.items() if time <= now}
            near = [pair for bucket in found if bucket for pair in bucket.nearest(code, limit + len(expired))]
        return [number for _, number in sorted(near) if number not in expired][:limit]

    def _refresh(self, connection: sqlite3.Connection) -> None:
        counters: dict[str, int] = dict(connection.execute("SELECT name, value FROM counters"))
        if counters["erased"] != self._erased:
            self._buckets.clear()
            self._bucket_of.clear()
            self._expiring.clear()
            self._changed = -1
        if counters["changed"] != self._changed:
            rows = connection.execute(
                "SELECT items.number, place, kind, expires_at, code FROM items CROSS JOIN vectors USING (number) "
                "WHERE changed > ? AND embedder = ?",
                (self._changed, self.embedder),
            )
            for number, place, kind, expires_at, code in rows:
                self._add_code(number, (place, kind), expires_at, int.from_bytes(code, "big"))
        self._changed, self._erased = counters["changed"], counters["erased"]

    def _add_code(self, number: int, bucket: tuple[str, str], expires_at: int | None, code: int) -> None:
        before = self._bucket_of.get(number)
        if before is not None and before != bucket:
            self._buckets[before].drop(number)
        self._bucket_of[number] = bucket
        self._buckets.setdefault(bucket, _Bucket()).add(number, code)
        if expires_at is None:
            self._expiring.pop(number, None)
        else:
            self._expiring[number] = expires_at


T = TypeVar("T")

EncodedVector = tuple[bytes, bytes]
"""A vector as the file keeps it: its code and its numbers."""

_INSERT = (
    f"INSERT INTO items ({', '.join(COLUMNS)}, changed) VALUES ({', '.join('?' * (len(COLUMNS) + 1))}) "
    f"ON CONFLICT (id) DO UPDATE SET {', '.join(f'{name} = excluded.{name}' for name in (*COLUMNS[1:], 'changed'))}"
)
_GIVE_VECTOR = (
    "INSERT OR REPLACE INTO vectors (number, embedder, code, vector) SELECT number, ?, ?, ? FROM items WHERE id = ?"
)
_VALUE = re.compile(r"(?P<list>= ANY\()?%\((?P<name>\w+)\)s(?(list)\))")


class SqliteTransaction(KnowledgeTransaction[EncodedVector]):
    """A transaction on one connection. Its methods never wait, so that a thread can run them without an event loop."""

    backend = "sqlite"
    schema_version = VERSION
    tables = ""
    vector_column = "vectors.vector"
    byte_order = ""
    not_by_place = "+"

    def __init__(self, connection: sqlite3.Connection, codes: VectorCodes) -> None:
        super().__init__(codes.embedder)
        self._connection = connection
        self._codes = codes

    async def rows(self, statement: str, values: Values | None = None) -> Rows:
        given: list[Any] = []

        def placeholder(match: re.Match[str]) -> str:
            value: Any = (values or {})[match["name"]]
            given.extend(value if match["list"] else [value])
            return f"IN ({', '.join('?' * len(value))})" if match["list"] else "?"

        return self._connection.execute(_VALUE.sub(placeholder, statement), given).fetchall()

    async def newest_facts(self, claims: Sequence[str]) -> Rows:
        return [
            row
            for claim in claims
            for among, count in (("", MAX_SETTLED_FACTS), (f"AND taint = '{UNTAINTED}'", 1))
            for row in self._connection.execute(
                f"SELECT {SELECTED_COLUMNS}, number FROM items WHERE claim = ? AND claim != '' {among} "
                "ORDER BY stored_at DESC, number DESC LIMIT ?",
                (claim, count),
            )
        ]

    async def write_items(self, items: Sequence[StoredItem], encoded: Mapping[str, EncodedVector]) -> None:
        changed = self._next_count("changed")
        self._connection.executemany(_INSERT, [(*item_row(item), changed) for item in items])
        self._replace_vectors(items, encoded)

    async def give_vectors(self, items: Sequence[StoredItem], encoded: Mapping[str, EncodedVector]) -> None:
        changed = self._next_count("changed")
        self._connection.executemany(
            "UPDATE items SET changed = ? WHERE id = ?", [(changed, item.id) for item in items]
        )
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
            return None if value is None else unpack_vector(value)
        except (ValueError, TypeError) as error:
            raise DamagedItem("a vector in it is none") from error

    async def nearest_numbers(self, vector: Sequence[float], visible: Mapping[str, Any], limit: int) -> list[int]:
        return self._codes.nearest(self._connection, vector, **visible, limit=limit)

    def word_queries(self, text: str, places: Sequence[str]) -> tuple[list[str], str, str]:
        quoted = [f'"{term}"' for term in query_terms(text)]
        at = " OR ".join(f'"{place}"' for place in places)

        def query(words: str) -> str:
            return f"{{text labels}} : ({words}) AND place : ({at})"

        return list(map(query, quoted)), query(" AND ".join(quoted)), query(" OR ".join(quoted))

    async def matching_numbers(self, queries: Sequence[str], limit: int) -> list[list[int]]:
        return [self._numbers(query, "LIMIT ?", limit) for query in queries]

    async def newest_matching(self, query: str, limit: int) -> list[int]:
        return self._numbers(query, "ORDER BY rowid DESC LIMIT ?", limit)

    def _numbers(self, query: str, which: str, limit: int) -> list[int]:
        rows = self._connection.execute(f"SELECT rowid FROM words WHERE words MATCH ? {which}", (query, limit))
        return [number for (number,) in rows]

    def _replace_vectors(self, items: Sequence[StoredItem], encoded: Mapping[str, EncodedVector]) -> None:
        vectors = [(self.embedder, *encoded[searchable_text(item)], item.id) for item in items]
        self._connection.executemany(_GIVE_VECTOR, vectors)

    def _next_count(self, name: str) -> int:
        [(value,)] = self._connection.execute(
            "UPDATE counters SET value = value + 1 WHERE name = ? RETURNING value", (name,)
        ).fetchall()
        return int(value)


def run_without_waiting(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine that waits for nothing, and return its result."""
    try:
        work.send(None)
    except StopIteration as end:
        return end.value
    raise RuntimeError("a transaction of the embedded store cannot wait")
