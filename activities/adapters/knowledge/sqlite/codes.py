"""The codes of all vectors in memory, by which the nearest are found: kept up to date from the file."""

import sqlite3
from collections.abc import Sequence
from heapq import nsmallest
from threading import Lock

from orga.activities.knowledge.vectors import code_of


class _Bucket:
    """What one place holds of one kind, in two lists that are gone through fast."""

    def __init__(self) -> None:
        self.numbers: list[int] = []
        self.codes: list[int] = []
        self._at: dict[int, int] = {}

    def keep(self, number: int, code: int) -> None:
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
        """Return how far the nearest are, with their numbers: at least so many, more where several are as far."""
        distances = [(code ^ other).bit_count() for other in self.codes]
        furthest = nsmallest(limit, distances)[-1] if distances else 0
        return [(distance, self.numbers[at]) for at, distance in enumerate(distances) if distance <= furthest]


class Codes:
    """Those of one embedder, by place and kind: what a reader cannot see is not even looked at.

    100,000 of them take some 15 MB and 15 ms to look through.
    """

    def __init__(self, embedder: str) -> None:
        self._embedder = embedder
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
            connection: In a transaction, so that what is read fits together.
            vector: What they are compared with.
            places: Those that the reader sees.
            kinds: What is looked for.
            now: In microseconds.
            limit: How many at most.
        """
        code = code_of(vector)
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
                (self._changed, self._embedder),
            )
            for number, place, kind, expires_at, code in rows:
                self._keep(number, (place, kind), expires_at, int.from_bytes(code, "big"))
        self._changed, self._erased = counters["changed"], counters["erased"]

    def _keep(self, number: int, bucket: tuple[str, str], expires_at: int | None, code: int) -> None:
        before = self._bucket_of.get(number)
        if before is not None and before != bucket:
            self._buckets[before].drop(number)
        self._bucket_of[number] = bucket
        self._buckets.setdefault(bucket, _Bucket()).keep(number, code)
        if expires_at is None:
            self._expiring.pop(number, None)
        else:
            self._expiring[number] = expires_at
