"""Finds the items that may fit a query, in bounded time: by words, by folder, and by codes of vectors in memory."""

import sqlite3
from collections.abc import Sequence
from heapq import nsmallest
from threading import Lock

from orga.activities.adapters.knowledge.rows import UNTAINTED, DamagedItem, row_item
from orga.activities.adapters.knowledge.sqlite.schema import SELECTED_COLUMNS
from orga.activities.knowledge.identity import tainted_claims, visible_places
from orga.activities.knowledge.ports import batches
from orga.activities.knowledge.ranking import (
    COMMON,
    MAX_IN_FOLDER,
    Candidate,
    candidate_limit,
    is_conventions_only,
    separate_kinds,
)
from orga.activities.knowledge.vectors import unpack_vector, vector_code
from orga.activities.knowledge.words import query_terms
from orga.workflows.types.knowledge import KnowledgeKind, Recall


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
                (self._changed, self._embedder),
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


_MAX_EXAMINED = 200
_CLAIM_CONDITION = "items.claim != '' AND items.claim"
"""The condition of its partial index."""


class SqliteSearch:
    """One recall on one connection in one transaction."""

    def __init__(self, connection: sqlite3.Connection, wish: Recall, *, now: int, embedder: str) -> None:
        self._connection = connection
        self._wish = wish
        self._now = now
        self._embedder = embedder
        self._enough = candidate_limit(wish)
        self._places = visible_places(wish.reader, wish.scopes)

    def candidates(self, codes: VectorCodes, query: Sequence[float] | None) -> list[Candidate]:
        """Return items that may match, facts that contradict them, and clean facts that differ from tainted ones.

        Args:
            codes: Codes of the current embedder.
            query: The vector of the text. None finds by words only.
        """
        wish = self._wish
        if wish.directory is not None or wish.language is not None or not wish.text.strip():
            found = self._folder_candidates(MAX_IN_FOLDER if wish.text.strip() else wish.limit)
        else:
            by_words = list(dict.fromkeys(self._numbers_by_words()))
            numbers = set[int]()
            for kinds in separate_kinds(wish):
                numbers.update(self._first_visible(by_words, kinds))
                if query is not None:
                    numbers.update(
                        codes.nearest(self._connection, query, self._places, kinds, now=self._now, limit=self._enough)
                    )
            found = self._load_candidates("items.number", sorted(numbers))
        newer = {each.item.contradicted_by for each in found if each.item.contradicted_by}
        missing = newer - {each.item.id for each in found}
        claims = tainted_claims((each.item for each in found), self._places)
        clean = self._load_candidates(
            f"items.taint = '{UNTAINTED}' AND items.contradicted_by = '' AND {_CLAIM_CONDITION}", sorted(claims)
        )
        return [*found, *self._load_candidates("items.id", sorted(missing)), *clean]

    def _folder_candidates(self, limit: int) -> list[Candidate]:
        wish, folder, values = self._wish, "", list[object]()
        for column, value in (("directory", wish.directory), ("language", wish.language)):
            if value is not None:
                folder += f" AND items.{column} = ?"
                values.append(value)
        if wish.language:
            folder += " AND items.language != ''"  # without this text SQLite does not use the partial index
        first = "items.confidence DESC, items.key" if is_conventions_only(wish) else "items.stored_at DESC"
        return self._read_candidates(
            f"{self._visible_condition(wish.kinds)}{folder} ORDER BY {first}, items.id LIMIT {limit:d}", values
        )

    def _load_candidates(self, column: str, values: Sequence[object]) -> list[Candidate]:
        # `+` keeps SQLite from scanning all items of a place to find these few.
        condition = f"+{self._visible_condition(self._wish.kinds)} AND {column} IN ({_placeholders(values)})"
        return self._read_candidates(condition, values) if values else []

    def _read_candidates(self, condition: str, values: Sequence[object]) -> list[Candidate]:
        rows = self._connection.execute(
            f"SELECT {SELECTED_COLUMNS}, vectors.vector FROM items "
            f"LEFT JOIN vectors ON vectors.number = items.number AND vectors.embedder = ? WHERE {condition}",
            (self._embedder, *self._visible_values(self._wish.kinds), *values),
        )
        return [Candidate(row_item(row), _unpacked_vector(row[-1])) for row in rows]

    def _visible_condition(self, kinds: Sequence[KnowledgeKind]) -> str:
        return (
            f"items.place IN ({_placeholders(self._places)}) AND items.kind IN ({_placeholders(kinds)}) "
            "AND (items.expires_at IS NULL OR items.expires_at > ?)"
        )

    def _visible_values(self, kinds: Sequence[KnowledgeKind]) -> tuple[object, ...]:
        return (*self._places, *kinds, self._now)

    def _numbers_by_words(self) -> list[int]:
        """Return the newest items with all words, and those with the rarest words.

        FTS5's `bm25` scans all items with a word before it ranks the first: 150 ms for common words in 100,000 items. A
        word in more items than are read has no weight here, unless there is no other word.
        """
        terms = query_terms(self._wish.text)
        if not terms or not self._places:
            return []
        newest, weights = f"ORDER BY rowid DESC LIMIT {self._enough:d}", dict[int, float]()
        for term in terms:
            numbers = self._matching_numbers(_quoted_word(term), f"LIMIT {COMMON}")
            for number in numbers if len(numbers) < COMMON else ():
                weights[number] = weights.get(number, 0.0) + 1 / (len(numbers) + 1)
        every = self._matching_numbers(" AND ".join(map(_quoted_word, terms)), newest)
        rarest = sorted(weights, key=lambda number: (-weights[number], -number))
        return [*every, *(rarest or self._matching_numbers(" OR ".join(map(_quoted_word, terms)), newest))]

    def _first_visible(self, numbers: Sequence[int], kinds: Sequence[KnowledgeKind]) -> list[int]:
        """Return the first items of these kinds that have not expired."""
        found: list[int] = []
        for part in batches(numbers, _MAX_EXAMINED):
            rows = self._connection.execute(
                f"SELECT number FROM items WHERE +{self._visible_condition(kinds)} AND number IN "
                f"({_placeholders(part)})",
                (*self._visible_values(kinds), *part),
            )
            visible = {number for (number,) in rows}
            found += [number for number in part if number in visible]
            if len(found) >= self._enough:
                break
        return found[: self._enough]

    def _matching_numbers(self, words: str, which: str) -> list[int]:
        """Return the items with these words that the reader sees."""
        places = " OR ".join(map(_quoted_word, self._places))
        rows = self._connection.execute(
            f"SELECT rowid FROM words WHERE words MATCH ? {which}",
            (f"{{text labels}} : ({words}) AND place : ({places})",),
        )
        return [number for (number,) in rows]


def _unpacked_vector(data: bytes | None) -> Sequence[float] | None:
    try:
        return None if data is None else unpack_vector(data)
    except (ValueError, TypeError) as error:
        raise DamagedItem("a vector in it is none") from error


def _quoted_word(word: str) -> str:
    return f'"{word}"'


def _placeholders(values: Sequence[object]) -> str:
    return ", ".join("?" * len(values))
