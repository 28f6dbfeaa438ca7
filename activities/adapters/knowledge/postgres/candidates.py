"""Finds the items that may match a query, in the way and within the limits of the embedded store."""

from array import array
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from psycopg import sql

from orga.activities.adapters.knowledge.postgres.schema import SELECTED_COLUMNS, PostgresConnection, code_bits
from orga.activities.adapters.knowledge.postgres.words import all_words_query, any_words_query
from orga.activities.adapters.knowledge.rows import UNTAINTED, row_item
from orga.activities.knowledge.identity import tainted_claims, visible_places
from orga.activities.knowledge.ranking import (
    COMMON,
    MAX_IN_FOLDER,
    Candidate,
    candidate_limit,
    is_conventions_only,
    separate_kinds,
)
from orga.activities.knowledge.vectors import vector_code
from orga.workflows.types.knowledge import KnowledgeKind, Recall

_VISIBLE = sql.SQL("place = ANY(%(places)s) AND kind = ANY(%(kinds)s) AND (expires_at IS NULL OR expires_at > %(now)s)")
_LOAD = sql.SQL(
    "SELECT {}, vectors.vector::real[] FROM (SELECT * FROM orga_knowledge.items WHERE {} AND {}) AS items "
    "LEFT JOIN orga_knowledge.vectors ON vectors.number = items.number AND vectors.embedder = %(embedder)s"
)
NEAREST = sql.SQL(
    "SELECT number FROM orga_knowledge.vectors WHERE embedder = %(embedder)s AND {} "
    "ORDER BY code <~> %(code)s::text::bit(512), number LIMIT %(limit)s"
).format(_VISIBLE)
_HOLDING = sql.SQL(
    "SELECT asked.place, found.number FROM unnest(%(queries)s::text[]) WITH ORDINALITY AS asked (query, place) "
    # MATERIALIZED makes PostgreSQL use the index. With just the limit it would scan the table.
    "CROSS JOIN LATERAL ("
    "WITH holding AS MATERIALIZED (SELECT number FROM orga_knowledge.items WHERE words @@ asked.query::tsquery) "
    "SELECT number FROM holding LIMIT %(limit)s"
    ") AS found ORDER BY asked.place"
)
_NEWEST_HOLDING = sql.SQL(
    "SELECT number FROM orga_knowledge.items WHERE words @@ %(query)s::text::tsquery "
    "ORDER BY number DESC LIMIT %(limit)s"
)
_FIRST_VISIBLE = sql.SQL(
    "SELECT asked.number FROM unnest(%(numbers)s::bigint[]) WITH ORDINALITY AS asked (number, place) "
    "WHERE EXISTS (SELECT 1 FROM orga_knowledge.items WHERE items.number = asked.number AND {}) "
    "ORDER BY asked.place LIMIT %(limit)s"
)

_CLEAN = sql.SQL("claim = ANY(%(wanted)s) AND claim != '' AND taint = {} AND contradicted_by = ''").format(UNTAINTED)


@dataclass(frozen=True)
class SearchQuery:
    """A query's text: for each of its terms a set of the store's words, and its vector."""

    terms: tuple[frozenset[str], ...]
    vector: Sequence[float] | None


class PostgresSearch:
    """One recall on one connection in one transaction."""

    def __init__(self, connection: PostgresConnection, wish: Recall, *, now: int, embedder: str) -> None:
        self._connection = connection
        self._wish = wish
        self._enough = candidate_limit(wish)
        self._places = list(visible_places(wish.reader, wish.scopes))
        self._values = {"places": self._places, "kinds": list(wish.kinds), "now": now, "embedder": embedder}

    async def candidates(self, query: SearchQuery) -> list[Candidate]:
        """Return items that may match, facts that contradict them, and clean facts that differ from tainted ones."""
        wish = self._wish
        if wish.directory is not None or wish.language is not None or not wish.text.strip():
            found = await self._folder_candidates(MAX_IN_FOLDER if wish.text.strip() else wish.limit)
        else:
            by_words = list(dict.fromkeys(await self._numbers_by_words(query.terms)))
            numbers = set[int]()
            for kinds in separate_kinds(wish):
                numbers.update(await self._first_visible(by_words, kinds))
                if query.vector is not None:
                    numbers.update(await self._nearest_numbers(query.vector, kinds))
            found = await self._load_candidates(sql.SQL("number = ANY(%(wanted)s)"), wanted=sorted(numbers))
        newer = {each.item.contradicted_by for each in found if each.item.contradicted_by}
        related = list[Candidate]()
        if missing := newer - {each.item.id for each in found}:
            related += await self._load_candidates(sql.SQL("id = ANY(%(wanted)s)"), wanted=sorted(missing))
        if claims := tainted_claims((each.item for each in found), self._places):
            related += await self._load_candidates(_CLEAN, wanted=sorted(claims))
        return [*found, *related]

    async def _folder_candidates(self, limit: int) -> list[Candidate]:
        wish, folder = self._wish, sql.SQL("TRUE")
        if wish.directory is not None:
            folder += sql.SQL(" AND directory = %(directory)s")
        if wish.language is not None:
            folder += sql.SQL(" AND language = %(language)s")
        if wish.language:
            folder += sql.SQL(" AND language != ''")  # the condition of its partial index
        first = sql.SQL('confidence DESC, key COLLATE "C"' if is_conventions_only(wish) else "stored_at DESC")
        among = sql.SQL(
            "number IN (SELECT number FROM orga_knowledge.items WHERE {} AND {} ORDER BY {}, id LIMIT %(limit)s)"
        ).format(folder, _VISIBLE, first)
        return await self._load_candidates(among, directory=wish.directory, language=wish.language, limit=limit)

    async def _load_candidates(self, condition: sql.Composable, **values: object) -> list[Candidate]:
        rows = await self._rows(_LOAD.format(SELECTED_COLUMNS, condition, _VISIBLE), **values)
        return [Candidate(row_item(row), None if row[-1] is None else array("f", row[-1])) for row in rows]

    async def _nearest_numbers(self, vector: Sequence[float], kinds: Sequence[KnowledgeKind]) -> list[int]:
        rows = await self._rows(NEAREST, code=code_bits(vector_code(vector)), limit=self._enough, kinds=list(kinds))
        return [number for (number,) in rows]

    async def _numbers_by_words(self, terms: Sequence[frozenset[str]]) -> list[int]:
        """Return the newest items with all words, and those with the rarest words.

        A word in many items has no weight, unless there is no other word.
        """
        if not terms or not self._places:
            return []
        queries = [all_words_query(term, self._places) for term in terms]
        holding = defaultdict[int, list[int]](list)
        for place, number in await self._rows(_HOLDING, queries=queries, limit=COMMON):
            holding[place].append(number)
        weights = dict[int, float]()
        for place in range(1, len(terms) + 1):
            for number in holding[place] if len(holding[place]) < COMMON else ():
                weights[number] = weights.get(number, 0.0) + 1 / (len(holding[place]) + 1)
        words = sorted(frozenset[str]().union(*terms))
        every = await self._newest_holding(all_words_query(words, self._places))
        rarest = sorted(weights, key=lambda number: (-weights[number], -number))
        return [*every, *(rarest or await self._newest_holding(any_words_query(words, self._places)))]

    async def _newest_holding(self, query: str) -> list[int]:
        return [number for (number,) in await self._rows(_NEWEST_HOLDING, query=query, limit=self._enough)]

    async def _first_visible(self, numbers: Sequence[int], kinds: Sequence[KnowledgeKind]) -> list[int]:
        """Return the first items of these kinds that have not expired."""
        statement = _FIRST_VISIBLE.format(_VISIBLE)
        rows = await self._rows(statement, numbers=list(numbers), limit=self._enough, kinds=list(kinds))
        return [number for (number,) in rows]

    async def _rows(self, statement: sql.SQL | sql.Composed, **values: object) -> list[tuple[Any, ...]]:
        cursor = self._connection.cursor(binary=True)
        await cursor.execute(statement, {**self._values, **values})
        return await cursor.fetchall()
