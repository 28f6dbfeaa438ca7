"""What may fit a query, found in a bounded time however much there is: by words, by vectors, by its folder."""

import sqlite3
from collections.abc import Sequence

from orga.activities.adapters.knowledge.rows import UNTAINTED, DamagedItem, item_of
from orga.activities.adapters.knowledge.sqlite.codes import Codes
from orga.activities.adapters.knowledge.sqlite.schema import SELECTED
from orga.activities.knowledge.batches import batches
from orga.activities.knowledge.identity import claims_of_tainted
from orga.activities.knowledge.ranking import COMMON, IN_A_FOLDER, Candidate, enough, is_of_conventions, kinds_apart
from orga.activities.knowledge.scopes import visible_places
from orga.activities.knowledge.vectors import unpacked
from orga.activities.knowledge.words import query_terms
from orga.workflows.types.knowledge import KnowledgeKind, Recall

_LOOKED_AT = 200
_CLAIM = "items.claim != '' AND items.claim"
"""As its index says."""


class Search:
    """One recall over one connection, within one transaction."""

    def __init__(self, connection: sqlite3.Connection, wish: Recall, *, now: int, embedder: str) -> None:
        self._connection = connection
        self._wish = wish
        self._now = now
        self._embedder = embedder
        self._enough = enough(wish)
        self._places = visible_places(wish.reader, wish.scopes)

    def candidates(self, codes: Codes, query: Sequence[float] | None) -> list[Candidate]:
        """Return all that may fit, the facts that contradict any of it, and clean ones where tainted ones differ.

        Args:
            codes: Those of the embedder in use.
            query: The vector of the text; None finds by words alone.
        """
        wish = self._wish
        if wish.directory is not None or wish.language is not None or not wish.text.strip():
            found = self._of_folder(IN_A_FOLDER if wish.text.strip() else wish.limit)
        else:
            by_words = list(dict.fromkeys(self._by_words()))
            numbers = set[int]()
            for kinds in kinds_apart(wish):
                numbers.update(self._first_visible(by_words, kinds))
                if query is not None:
                    numbers.update(
                        codes.nearest(self._connection, query, self._places, kinds, now=self._now, limit=self._enough)
                    )
            found = self._loaded("items.number", sorted(numbers))
        newer = {each.item.contradicted_by for each in found if each.item.contradicted_by}
        missing = newer - {each.item.id for each in found}
        claims = claims_of_tainted((each.item for each in found), self._places)
        clean = self._loaded(f"items.taint = '{UNTAINTED}' AND items.contradicted_by = '' AND {_CLAIM}", sorted(claims))
        return [*found, *self._loaded("items.id", sorted(missing)), *clean]

    def _of_folder(self, limit: int) -> list[Candidate]:
        wish, folder, values = self._wish, "", list[object]()
        for column, value in (("directory", wish.directory), ("language", wish.language)):
            if value is not None:
                folder += f" AND items.{column} = ?"
                values.append(value)
        if wish.language:
            folder += " AND items.language != ''"  # which SQLite has to read, or it does not take the index
        first = "items.confidence DESC, items.key" if is_of_conventions(wish) else "items.stored_at DESC"
        return self._read(f"{self._visible(wish.kinds)}{folder} ORDER BY {first}, items.id LIMIT {limit:d}", values)

    def _loaded(self, column: str, values: Sequence[object]) -> list[Candidate]:
        # `+` keeps SQLite from going through all items of a place to find these few.
        condition = f"+{self._visible(self._wish.kinds)} AND {column} IN ({_marks(values)})"
        return self._read(condition, values) if values else []

    def _read(self, condition: str, values: Sequence[object]) -> list[Candidate]:
        rows = self._connection.execute(
            f"SELECT {SELECTED}, vectors.vector FROM items "
            f"LEFT JOIN vectors ON vectors.number = items.number AND vectors.embedder = ? WHERE {condition}",
            (self._embedder, *self._visible_values(self._wish.kinds), *values),
        )
        return [Candidate(item_of(row), _vector(row[-1])) for row in rows]

    def _visible(self, kinds: Sequence[KnowledgeKind]) -> str:
        return (
            f"items.place IN ({_marks(self._places)}) AND items.kind IN ({_marks(kinds)}) "
            "AND (items.expires_at IS NULL OR items.expires_at > ?)"
        )

    def _visible_values(self, kinds: Sequence[KnowledgeKind]) -> tuple[object, ...]:
        return (*self._places, *kinds, self._now)

    def _by_words(self) -> list[int]:
        """Return the newest that hold all words, and those that hold the rarest ones.

        FTS5's `bm25` goes through all that hold a word before it weighs the first, 150 ms for common words of 100,000
        items; here a word that more items hold than are looked at weighs nothing, unless there is no other.
        """
        terms = query_terms(self._wish.text)
        if not terms or not self._places:
            return []
        newest, weights = f"ORDER BY rowid DESC LIMIT {self._enough:d}", dict[int, float]()
        for term in terms:
            numbers = self._matching(_quoted(term), f"LIMIT {COMMON}")
            for number in numbers if len(numbers) < COMMON else ():
                weights[number] = weights.get(number, 0.0) + 1 / (len(numbers) + 1)
        every = self._matching(" AND ".join(map(_quoted, terms)), newest)
        rarest = sorted(weights, key=lambda number: (-weights[number], -number))
        return [*every, *(rarest or self._matching(" OR ".join(map(_quoted, terms)), newest))]

    def _first_visible(self, numbers: Sequence[int], kinds: Sequence[KnowledgeKind]) -> list[int]:
        """Return the first of these that are of these kinds and have not expired."""
        found: list[int] = []
        for part in batches(numbers, _LOOKED_AT):
            rows = self._connection.execute(
                f"SELECT number FROM items WHERE +{self._visible(kinds)} AND number IN ({_marks(part)})",
                (*self._visible_values(kinds), *part),
            )
            visible = {number for (number,) in rows}
            found += [number for number in part if number in visible]
            if len(found) >= self._enough:
                break
        return found[: self._enough]

    def _matching(self, words: str, which: str) -> list[int]:
        """Return what the reader sees and holds these words."""
        places = " OR ".join(map(_quoted, self._places))
        rows = self._connection.execute(
            f"SELECT rowid FROM words WHERE words MATCH ? {which}",
            (f"{{text labels}} : ({words}) AND place : ({places})",),
        )
        return [number for (number,) in rows]


def _vector(data: bytes | None) -> Sequence[float] | None:
    try:
        return None if data is None else unpacked(data)
    except (ValueError, TypeError) as error:
        raise DamagedItem("a vector in it is none") from error


def _quoted(word: str) -> str:
    return f'"{word}"'


def _marks(values: Sequence[object]) -> str:
    return ", ".join("?" * len(values))
