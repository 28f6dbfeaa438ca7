"""What may fit a query, found as the embedded store finds it, within the same limits: so the same items are ranked."""

from array import array
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from psycopg import sql

from orga.activities.adapters.knowledge.postgres.bm25 import Match, Rarity, heaviest
from orga.activities.adapters.knowledge.postgres.rows import SELECTED, bits
from orga.activities.adapters.knowledge.postgres.schema import Connection
from orga.activities.adapters.knowledge.postgres.words import all_of, quoted, some_of
from orga.activities.adapters.knowledge.sqlite.candidates import COMMON, IN_A_FOLDER, SCANNED
from orga.activities.adapters.knowledge.sqlite.rows import item_of
from orga.activities.knowledge.ranking import CANDIDATES, Candidate
from orga.activities.knowledge.scopes import visible_places
from orga.activities.knowledge.vectors import code_of
from orga.workflows.types.knowledge import Recall

_VISIBLE = sql.SQL("place = ANY(%(places)s) AND kind = ANY(%(kinds)s) AND (expires_at IS NULL OR expires_at > %(now)s)")
_LOAD = sql.SQL(
    "SELECT {}, vectors.vector::real[] FROM (SELECT * FROM orga_knowledge.items WHERE {} AND {}) AS items "
    "LEFT JOIN orga_knowledge.vectors ON vectors.number = items.number AND vectors.embedder = %(embedder)s"
)
_NEAREST = sql.SQL(
    "SELECT number FROM orga_knowledge.vectors WHERE embedder = %(embedder)s AND {} "
    "ORDER BY code <~> %(code)s::text::bit(512), number LIMIT %(limit)s"
).format(_VISIBLE)
_NEWEST_MATCHES = sql.SQL(
    "SELECT number, words, word_count FROM orga_knowledge.items WHERE words @@ %(query)s::text::tsquery AND {} "
    "ORDER BY number DESC LIMIT %(limit)s"
).format(_VISIBLE)
_WEIGHED = sql.SQL(
    "SELECT found.number, found.word_count, held.lexeme, cardinality(held.positions) FROM ({}) AS found "
    "CROSS JOIN LATERAL unnest(found.words) AS held WHERE held.lexeme = ANY(%(words)s)"
).format(_NEWEST_MATCHES)
_HOLDING = """
    SELECT asked.place, (
        SELECT count(*) FROM (
            SELECT 1 FROM orga_knowledge.items WHERE words @@ asked.query::tsquery LIMIT %(limit)s
        ) AS holding
    ) FROM unnest(%(queries)s::text[]) WITH ORDINALITY AS asked (query, place) ORDER BY asked.place"""


class Term(NamedTuple):
    """A word of a query."""

    asked: str
    word: str
    """That stands for it in the store."""


@dataclass(frozen=True)
class Query:
    """A text that is looked for."""

    terms: tuple[Term, ...]
    vector: Sequence[float] | None


class Search:
    """One recall over one connection, within one transaction."""

    def __init__(self, connection: Connection, wish: Recall, *, now: int, embedder: str) -> None:
        self._connection = connection
        self._wish = wish
        self._places = list(visible_places(wish.reader, wish.scopes))
        self._values = {"places": self._places, "kinds": list(wish.kinds), "now": now, "embedder": embedder}

    async def candidates(self, query: Query) -> list[Candidate]:
        """Return all that may fit, and the facts that contradict any of it."""
        wish = self._wish
        if wish.directory is not None or wish.language is not None or not wish.text.strip():
            found = await self._newest(IN_A_FOLDER if wish.text.strip() else wish.limit)
        else:
            numbers = set(await self._by_words(query.terms))
            if query.vector is not None:
                numbers.update(await self._nearest(query.vector))
            found = await self._load(sql.SQL("number = ANY(%(wanted)s)"), wanted=sorted(numbers))
        newer = {each.item.contradicted_by for each in found if each.item.contradicted_by}
        missing = newer - {each.item.id for each in found}
        if not missing:
            return found
        return [*found, *await self._load(sql.SQL("id = ANY(%(wanted)s)"), wanted=sorted(missing))]

    async def _newest(self, limit: int) -> list[Candidate]:
        wish, folder = self._wish, sql.SQL("TRUE")
        if wish.directory is not None:
            folder += sql.SQL(" AND directory = %(directory)s")
        if wish.language is not None:
            folder += sql.SQL(" AND language = %(language)s")
        newest = sql.SQL(
            "number IN (SELECT number FROM orga_knowledge.items WHERE {} AND {} "
            "ORDER BY stored_at DESC, id LIMIT %(limit)s)"
        ).format(folder, _VISIBLE)
        return await self._load(newest, directory=wish.directory, language=wish.language, limit=limit)

    async def _load(self, condition: sql.Composable, **values: object) -> list[Candidate]:
        rows = await self._rows(_LOAD.format(SELECTED, condition, _VISIBLE), **values)
        return [Candidate(item_of(row), None if row[-1] is None else array("f", row[-1])) for row in rows]

    async def _nearest(self, vector: Sequence[float]) -> list[int]:
        return [number for (number,) in await self._rows(_NEAREST, code=bits(code_of(vector)), limit=CANDIDATES)]

    async def _by_words(self, terms: Sequence[Term]) -> list[int]:
        """Return what holds the rarest of the words; where all are common, the newest that holds all, then any."""
        if not terms or not self._places:
            return []
        words = [term.word for term in terms]
        here = await self._holding([some_of([word], self._places) for word in words], COMMON)
        counts = sorted(zip(here, terms, strict=True))
        telling, sum_of_counts = list[str](), 0
        for count, term in counts:
            sum_of_counts += count
            if telling and (count >= COMMON or sum_of_counts > SCANNED):
                break
            telling.append(term.word)
        if counts[0][0] < COMMON:
            return await self._weighed(telling)
        every, some = all_of(words, self._places), some_of(words, self._places)
        return [*await self._matching(every), *await self._matching(some)]

    async def _matching(self, query: str) -> list[int]:
        return [row[0] for row in await self._rows(_NEWEST_MATCHES, query=query, limit=CANDIDATES)]

    async def _weighed(self, words: Sequence[str]) -> list[int]:
        """Return the heaviest of the newest that hold any of the words."""
        query = some_of(words, self._places)
        rows = await self._rows(_WEIGHED, query=query, words=list(set(words)), limit=SCANNED)
        times = defaultdict[int, dict[str, int]](dict)
        sizes = dict[int, int]()
        for number, size, word, count in rows:
            times[number][word] = count
            sizes[number] = size
        (items, total), *_ = await self._rows(sql.SQL("SELECT items, words FROM orga_knowledge.totals"))
        everywhere = await self._holding(list(map(quoted, words)), None)
        rarity = Rarity(items, total, tuple(zip(words, everywhere, strict=True)))
        return heaviest([Match(number, sizes[number], times[number]) for number in times], rarity, CANDIDATES)

    async def _holding(self, queries: Sequence[str], limit: int | None) -> list[int]:
        """Return how many items each of the queries finds, counting no further than the limit."""
        return [count for _, count in await self._rows(sql.SQL(_HOLDING), queries=list(queries), limit=limit)]

    async def _rows(self, statement: sql.Composable, **values: object) -> list[tuple[Any, ...]]:
        cursor = self._connection.cursor(binary=True)
        await cursor.execute(statement, {**self._values, **values})
        return await cursor.fetchall()
