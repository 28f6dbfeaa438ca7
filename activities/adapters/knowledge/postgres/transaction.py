"""One transaction of the knowledge store of a fleet."""

from array import array
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from orga.activities.adapters.knowledge.postgres.schema import VERSION, PostgresConnection, code_bits
from orga.activities.adapters.knowledge.postgres.words import (
    WordTokenizer,
    all_words_query,
    any_words_query,
    words_tsvector,
)
from orga.activities.adapters.knowledge.rows import COLUMNS, UNTAINTED, item_row
from orga.activities.adapters.knowledge.transactions import SELECTED_COLUMNS, KnowledgeTransaction, Rows, Values
from orga.activities.knowledge.arrival import MAX_SETTLED_FACTS
from orga.activities.knowledge.identity import scope_place
from orga.activities.knowledge.vectors import vector_code
from orga.activities.knowledge.words import query_terms, searchable_text
from orga.workflows.types.knowledge import StoredItem

EncodedText = tuple[str, str, frozenset[str]]
"""A text as the database takes it: the code and the numbers of its vector, and its words."""

_NEWEST = "ORDER BY stored_at DESC, number DESC LIMIT"
_FACTS = (
    f"SELECT {SELECTED_COLUMNS}, number FROM orga_knowledge.items WHERE number IN ("
    "SELECT newest.number FROM unnest(%(claims)s::text[]) AS asked (claim) CROSS JOIN LATERAL ("
    "SELECT number FROM orga_knowledge.items WHERE items.claim = asked.claim AND items.claim != '' "
    f"{_NEWEST} %(count)s) AS newest "
    "UNION SELECT clean.number FROM unnest(%(claims)s::text[]) AS asked (claim) CROSS JOIN LATERAL ("
    "SELECT number FROM orga_knowledge.items WHERE items.claim = asked.claim AND items.claim != '' "
    f"AND items.taint = '{UNTAINTED}' {_NEWEST} 1) AS clean)"
)
_QUOTED = [f'"{name}"' for name in COLUMNS]
_INSERT = (
    f"INSERT INTO orga_knowledge.items ({', '.join(_QUOTED)}, words) "
    f"VALUES ({', '.join(f'%({name})s' for name in COLUMNS)}, %(words)s::text::tsvector) ON CONFLICT (id) "
    f"DO UPDATE SET {', '.join(f'{name} = excluded.{name}' for name in (*_QUOTED[1:], 'words'))}"
)
_GIVE_VECTOR = (
    "INSERT INTO orga_knowledge.vectors (number, place, kind, expires_at, embedder, code, vector) "
    "SELECT number, place, kind, expires_at, %(embedder)s, %(code)s::text::bit(512), %(vector)s::text::vector "
    "FROM orga_knowledge.items WHERE id = %(id)s"
)
NEAREST = (
    "SELECT number FROM orga_knowledge.vectors WHERE embedder = %(embedder)s "
    "AND place = ANY(%(places)s) AND kind = ANY(%(kinds)s) AND (expires_at IS NULL OR expires_at > %(now)s) "
    "ORDER BY code <~> %(code)s::text::bit(512), number LIMIT %(limit)s"
)
_MATCHING = (
    "SELECT asked.place, found.number FROM unnest(%(queries)s::text[]) WITH ORDINALITY AS asked (query, place) "
    # MATERIALIZED makes PostgreSQL use the index. With just the limit it would scan the table.
    "CROSS JOIN LATERAL ("
    "WITH holding AS MATERIALIZED (SELECT number FROM orga_knowledge.items WHERE words @@ asked.query::tsquery) "
    "SELECT number FROM holding LIMIT %(limit)s"
    ") AS found ORDER BY asked.place"
)


class PostgresTransaction(KnowledgeTransaction[EncodedText]):
    """A transaction on one connection."""

    backend = "postgres"
    schema_version = VERSION
    tables = "orga_knowledge."
    vector_column = "vectors.vector::real[]"
    byte_order = ' COLLATE "C"'
    not_by_place = ""

    def __init__(self, connection: PostgresConnection, tokenizer: WordTokenizer, embedder: str) -> None:
        super().__init__(embedder)
        self._connection = connection
        self._tokenizer = tokenizer

    async def rows(self, statement: str, values: Values | None = None) -> Rows:
        cursor = self._connection.cursor(binary=True)
        await cursor.execute(statement.encode(), values)
        return await cursor.fetchall() if cursor.description else []

    async def execute_many(self, statement: str, many: Iterable[Values]) -> None:
        async with self._connection.cursor() as cursor:
            await cursor.executemany(statement.encode(), many)

    async def newest_facts(self, claims: Sequence[str]) -> Rows:
        return await self.rows(_FACTS, {"claims": claims, "count": MAX_SETTLED_FACTS}) if claims else []

    async def write_items(self, items: Sequence[StoredItem], encoded: Mapping[str, EncodedText]) -> None:
        rows: list[dict[str, object]] = []
        for item in items:
            _, _, words = encoded[searchable_text(item)]
            tsvector = words_tsvector(words, scope_place(item.scope, item.owner))
            rows.append({**dict(zip(COLUMNS, item_row(item), strict=True)), "words": tsvector})
        await self.execute_many(_INSERT, rows)
        await self.give_vectors(items, encoded)

    async def give_vectors(self, items: Sequence[StoredItem], encoded: Mapping[str, EncodedText]) -> None:
        await self.rows(
            "DELETE FROM orga_knowledge.vectors USING orga_knowledge.items "
            "WHERE items.number = vectors.number AND items.id = ANY(%(ids)s)",
            {"ids": [item.id for item in items]},
        )
        rows: list[dict[str, object]] = []
        for item in items:
            code, vector, _ = encoded[searchable_text(item)]
            rows.append({"embedder": self.embedder, "code": code, "vector": vector, "id": item.id})
        await self.execute_many(_GIVE_VECTOR, rows)

    async def rebuild_words(self) -> None:
        await self.rows("REINDEX INDEX orga_knowledge.items_by_words")

    async def size_bytes(self) -> int:
        [(size,)] = await self.rows(
            "SELECT pg_total_relation_size('orga_knowledge.items') + pg_total_relation_size('orga_knowledge.vectors')"
        )
        return int(size)

    def unpacked_vector(self, value: Sequence[float] | None) -> Sequence[float] | None:
        return None if value is None else array("f", value)

    async def nearest_numbers(self, vector: Sequence[float], visible: Values, limit: int) -> list[int]:
        query = {"code": code_bits(vector_code(vector)), "embedder": self.embedder, "limit": limit}
        return [number for (number,) in await self.rows(NEAREST, {**visible, **query})]

    def word_queries(self, text: str, places: Sequence[str]) -> tuple[list[str], str, str]:
        terms = list(filter(None, self._tokenizer.tokenize(query_terms(text))))
        words = sorted(frozenset[str]().union(*terms))
        each = [all_words_query(term, places) for term in terms]
        return each, all_words_query(words, places), any_words_query(words, places)

    async def matching_numbers(self, queries: Sequence[str], limit: int) -> list[list[int]]:
        found = defaultdict[int, list[int]](list)
        for place, number in await self.rows(_MATCHING, {"queries": queries, "limit": limit}):
            found[place].append(number)
        return [found[place] for place in range(1, len(queries) + 1)]

    async def newest_matching(self, query: str, limit: int) -> list[int]:
        rows = await self.rows(
            "SELECT number FROM orga_knowledge.items WHERE words @@ %(query)s::text::tsquery "
            "ORDER BY number DESC LIMIT %(limit)s",
            {"query": query, "limit": limit},
        )
        return [number for (number,) in rows]
