"""What may fit a query, found in a bounded time however much there is: by words, by vectors, by its folder."""

import sqlite3
from collections.abc import Sequence
from typing import Any

from orga.activities.adapters.knowledge.sqlite.codes import Codes
from orga.activities.adapters.knowledge.sqlite.rows import SELECTED, item_of
from orga.activities.knowledge.ranking import CANDIDATES, Candidate
from orga.activities.knowledge.scopes import visible_places
from orga.activities.knowledge.vectors import unpacked
from orga.activities.knowledge.words import query_terms
from orga.workflows.types.knowledge import Recall

IN_A_FOLDER = 500
"""Items of one directory or language that are looked at, the newest."""
COMMON = 2_000
"""A word of more items than this chooses none, where another one does."""
SCANNED = 4_000
"""Items that are weighed by their words."""


class Search:
    """One recall over one connection, within one transaction."""

    def __init__(self, connection: sqlite3.Connection, wish: Recall, *, now: int, embedder: str) -> None:
        self._connection = connection
        self._wish = wish
        self._now = now
        self._embedder = embedder
        self._places = visible_places(wish.reader, wish.scopes)

    def candidates(self, codes: Codes, query: Sequence[float] | None) -> list[Candidate]:
        """Return all that may fit, and the facts that contradict any of it.

        Args:
            codes: Those of the embedder in use.
            query: The vector of the text; None finds by words alone.
        """
        wish = self._wish
        if wish.directory is not None or wish.language is not None or not wish.text.strip():
            found = self._newest(IN_A_FOLDER if wish.text.strip() else wish.limit)
        else:
            numbers = set(self._by_words())
            if query is not None:
                numbers.update(
                    codes.nearest(self._connection, query, self._places, wish.kinds, now=self._now, limit=CANDIDATES)
                )
            found = self._loaded("items.number", sorted(numbers))
        newer = {each.item.contradicted_by for each in found if each.item.contradicted_by}
        missing = newer - {each.item.id for each in found}
        return [*found, *self._loaded("items.id", sorted(missing))]

    def _newest(self, limit: int) -> list[Candidate]:
        wish, folder, values = self._wish, "", list[object]()
        for column, value in (("directory", wish.directory), ("language", wish.language)):
            if value is not None:
                folder += f" AND items.{column} = ?"
                values.append(value)
        return self._read(f"{folder} ORDER BY items.stored_at DESC, items.id LIMIT {limit:d}", values)

    def _loaded(self, column: str, values: Sequence[object]) -> list[Candidate]:
        return self._read(f" AND {column} IN ({_marks(values)})", values) if values else []

    def _read(self, condition: str, values: Sequence[object]) -> list[Candidate]:
        rows = self._connection.execute(
            f"SELECT {SELECTED}, vectors.vector FROM items "
            "LEFT JOIN vectors ON vectors.number = items.number AND vectors.embedder = ? "
            f"WHERE {self._visible()}{condition}",
            (self._embedder, *self._visible_values(), *values),
        )
        return [Candidate(item_of(row), None if row[-1] is None else unpacked(row[-1])) for row in rows]

    def _visible(self) -> str:
        return (
            f"items.place IN ({_marks(self._places)}) AND items.kind IN ({_marks(self._wish.kinds)}) "
            "AND (items.expires_at IS NULL OR items.expires_at > ?)"
        )

    def _visible_values(self) -> tuple[object, ...]:
        return (*self._places, *self._wish.kinds, self._now)

    def _by_words(self) -> list[int]:
        """Return what holds the rarest of the words; where all are common, the newest that holds all, then any."""
        terms = query_terms(self._wish.text)
        if not terms or not self._places:
            return []
        counts = sorted((self._count(term), term) for term in terms)
        telling, sum_of_counts = list[str](), 0
        for count, term in counts:
            sum_of_counts += count
            if telling and (count >= COMMON or sum_of_counts > SCANNED):
                break
            telling.append(term)
        if counts[0][0] < COMMON:
            return self._matching(" OR ".join(map(_quoted, telling)), is_weighed=True)
        every, some = " AND ".join(map(_quoted, terms)), " OR ".join(map(_quoted, terms))
        return [*self._matching(every, is_weighed=False), *self._matching(some, is_weighed=False)]

    def _matching(self, words: str, *, is_weighed: bool) -> list[int]:
        order, scanned = ("bm25(words, 1.0, 1.0, 0.0)", SCANNED) if is_weighed else ("0", CANDIDATES)
        rows: list[tuple[Any, ...]] = self._connection.execute(
            f"SELECT number FROM (SELECT words.rowid AS number, {order} AS weight FROM words "
            f"JOIN items ON items.number = words.rowid WHERE words MATCH ? AND {self._visible()} "
            f"ORDER BY words.rowid DESC LIMIT {scanned:d}) ORDER BY weight LIMIT {CANDIDATES:d}",
            (self._match(words), *self._visible_values()),
        ).fetchall()
        return [number for (number,) in rows]

    def _count(self, term: str) -> int:
        (count,) = self._connection.execute(
            "SELECT count(*) FROM (SELECT 1 FROM words WHERE words MATCH ? LIMIT ?)",
            (self._match(_quoted(term)), COMMON),
        ).fetchone()
        return int(count)

    def _match(self, words: str) -> str:
        return f"{{text labels}} : ({words}) AND place : ({' OR '.join(map(_quoted, self._places))})"


def _quoted(word: str) -> str:
    return f'"{word}"'


def _marks(values: Sequence[object]) -> str:
    return ", ".join("?" * len(values))
