"""Finds the items that may match a query, in bounded time: by words, by vectors and by folder."""

from collections.abc import Sequence
from typing import Any

from orga.activities.adapters.knowledge.rows import UNTAINTED, row_item
from orga.activities.adapters.knowledge.transactions import SELECTED_COLUMNS, KnowledgeTransaction
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
from orga.workflows.types.knowledge import KnowledgeKind, Recall

_MAX_EXAMINED = 200
_VISIBLE = (
    "items.place = ANY(%(places)s) AND items.kind = ANY(%(kinds)s) "
    "AND (items.expires_at IS NULL OR items.expires_at > %(now)s)"
)


class KnowledgeSearch:
    """One recall in one transaction."""

    def __init__(self, transaction: KnowledgeTransaction[Any], wish: Recall, *, now: int) -> None:
        """Keep the query.

        Args:
            transaction: Reads the store.
            wish: The query with its limits.
            now: The time in microseconds.
        """
        self._transaction = transaction
        self._wish = wish
        self._enough = candidate_limit(wish)
        self._places = list(visible_places(wish.reader, wish.scopes))
        self._visible: dict[str, object] = {"places": self._places, "kinds": list(wish.kinds), "now": now}

    async def candidates(self, query: Sequence[float] | None) -> list[Candidate]:
        """Return items that may match, facts that contradict them, and clean facts that differ from tainted ones.

        Args:
            query: The vector of the text. None finds by words only.
        """
        wish = self._wish
        if wish.directory is not None or wish.language is not None or not wish.text.strip():
            numbers = await self._numbers_in_folder(MAX_IN_FOLDER if wish.text.strip() else wish.limit)
        else:
            numbers = await self._numbers_by_text(query)
        found = await self._load_candidates("items.number", numbers)
        newer = {each.item.contradicted_by for each in found if each.item.contradicted_by}
        missing = newer - {each.item.id for each in found}
        claims = tainted_claims((each.item for each in found), self._places)
        clean = await self._load_candidates(
            # A condition on a claim begins with that of its partial index.
            f"items.taint = '{UNTAINTED}' AND items.contradicted_by = '' AND items.claim != '' AND items.claim",
            sorted(claims),
        )
        return [*found, *await self._load_candidates("items.id", sorted(missing)), *clean]

    async def _numbers_in_folder(self, limit: int) -> list[int]:
        wish, folder = self._wish, ""
        if wish.directory is not None:
            folder += " AND items.directory = %(directory)s"
        if wish.language is not None:
            folder += " AND items.language = %(language)s"
        if wish.language:
            folder += " AND items.language != ''"  # without this text a database does not use the partial index
        is_surest_first = is_conventions_only(wish)
        first = (
            f"items.confidence DESC, items.key{self._transaction.byte_order}" if is_surest_first else "stored_at DESC"
        )
        return await self._numbers(
            f"SELECT number FROM {self._transaction.tables}items "
            f"WHERE {_VISIBLE}{folder} ORDER BY {first}, items.id LIMIT %(limit)s",
            directory=wish.directory,
            language=wish.language,
            limit=limit,
        )

    async def _numbers_by_text(self, query: Sequence[float] | None) -> list[int]:
        by_words = list(dict.fromkeys(await self._numbers_by_words()))
        numbers = set[int]()
        for kinds in separate_kinds(self._wish):
            numbers.update(await self._first_visible(by_words, kinds))
            if query is not None:
                visible = {**self._visible, "kinds": list(kinds)}
                numbers.update(await self._transaction.nearest_numbers(query, visible, self._enough))
        return sorted(numbers)

    async def _numbers_by_words(self) -> list[int]:
        """Return the newest items with all words, and those with the rarest words.

        A word in more items than are read has no weight here, unless there is no other word. FTS5's `bm25` would scan
        all items with a word before it ranks the first: 150 ms for common words in 100,000 items.
        """
        each, with_all, with_any = self._transaction.word_queries(self._wish.text, self._places)
        if not each or not self._places:
            return []
        weights = dict[int, float]()
        for numbers in await self._transaction.matching_numbers(each, COMMON):
            for number in numbers if len(numbers) < COMMON else ():
                weights[number] = weights.get(number, 0.0) + 1 / (len(numbers) + 1)
        newest = await self._transaction.newest_matching(with_all, self._enough)
        rarest = sorted(weights, key=lambda number: (-weights[number], -number))
        return [*newest, *(rarest or await self._transaction.newest_matching(with_any, self._enough))]

    async def _first_visible(self, numbers: Sequence[int], kinds: Sequence[KnowledgeKind]) -> list[int]:
        """Return the first items of these kinds that have not expired."""
        found: list[int] = []
        for part in batches(numbers, _MAX_EXAMINED):
            visible = set(
                await self._numbers(
                    f"SELECT number FROM {self._transaction.tables}items "
                    f"WHERE {self._transaction.not_by_place}{_VISIBLE} AND number = ANY(%(numbers)s)",
                    numbers=part,
                    kinds=list(kinds),
                )
            )
            found += [number for number in part if number in visible]
            if len(found) >= self._enough:
                break
        return found[: self._enough]

    async def _load_candidates(self, column: str, values: Sequence[object]) -> list[Candidate]:
        if not values:
            return []
        store = self._transaction
        rows = await store.rows(
            f"SELECT {SELECTED_COLUMNS}, {store.vector_column} FROM {store.tables}items "
            f"LEFT JOIN {store.tables}vectors ON vectors.number = items.number AND vectors.embedder = %(embedder)s "
            f"WHERE {store.not_by_place}{_VISIBLE} AND {column} = ANY(%(wanted)s)",
            {**self._visible, "embedder": store.embedder, "wanted": values},
        )
        return [Candidate(row_item(row), store.unpacked_vector(row[-1])) for row in rows]

    async def _numbers(self, statement: str, **values: object) -> list[int]:
        return [number for (number,) in await self._transaction.rows(statement, {**self._visible, **values})]
