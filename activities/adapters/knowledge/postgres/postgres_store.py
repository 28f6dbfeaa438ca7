"""The knowledge store for workers on several machines: PostgreSQL with pgvector."""

import asyncio
import sqlite3
from array import array
from collections import defaultdict
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from datetime import datetime
from hashlib import sha256
from threading import Lock
from typing import Any, Literal, NamedTuple, TypeVar

import psycopg

from orga.activities.adapters.knowledge.postgres.schema import (
    MIGRATION_LOCK,
    VERSION,
    PostgresAddress,
    PostgresConnection,
    code_bits,
    migrate,
    raising_knowledge_errors,
    vector_text,
)
from orga.activities.adapters.knowledge.store import DatabaseStore, Work, utc_now
from orga.activities.adapters.knowledge.transactions import (
    COLUMNS,
    SELECTED_COLUMNS,
    UNTAINTED,
    KnowledgeTransaction,
    Rows,
    Values,
    WordQueries,
    item_row,
)
from orga.activities.knowledge.arrival import MAX_SETTLED_FACTS
from orga.activities.knowledge.identity import audience_digits
from orga.activities.knowledge.ports import Embedder
from orga.activities.knowledge.vectors import vector_code
from orga.activities.knowledge.words import query_terms, searchable_text
from orga.workflows.types.knowledge import StoredItem

MAX_CONNECTIONS = 8
"""Connections of one store. A server usually accepts 100 connections from all workers together."""

OPERATION_TIMEOUT_S = 120.0
"""Seconds for one transaction, including the wait for other writers."""


class PostgresConnections:
    def __init__(self, address: PostgresAddress) -> None:
        self._address = address
        self._idle: list[PostgresConnection] = []
        self._slots = asyncio.Semaphore(MAX_CONNECTIONS)
        self._is_closed = False
        self._is_migrated = False
        self._migrating = asyncio.Lock()

    async def close(self) -> None:
        """Close idle connections. Connections in use close when their work ends."""
        self._is_closed = True
        idle, self._idle = self._idle, []
        for connection in idle:
            await connection.close()

    @asynccontextmanager
    async def without_transaction(self) -> AsyncGenerator[PostgresConnection]:
        with raising_knowledge_errors(self._address):
            async with asyncio.timeout(OPERATION_TIMEOUT_S), self._slots:
                connection = await self._working_connection()
                try:
                    yield connection
                finally:
                    await self._release(connection)

    @asynccontextmanager
    async def transaction(self, *, is_writing: bool) -> AsyncGenerator[PostgresConnection]:
        """Yield a connection in a transaction. Only one writer runs at a time. A reader sees one state of the store."""
        async with self.without_transaction() as connection:
            try:
                if is_writing:
                    await connection.execute("BEGIN")
                    await connection.execute("SELECT pg_advisory_xact_lock(%s)", (MIGRATION_LOCK,))
                else:
                    await connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
                yield connection
                await connection.execute("COMMIT")
            except BaseException:
                with suppress(psycopg.Error):
                    await connection.execute("ROLLBACK")
                raise

    async def _working_connection(self) -> PostgresConnection:
        """Return a connection that answers: an idle one, or else a new one."""
        while self._idle:
            connection = self._idle.pop()
            try:
                await connection.execute("SELECT 1")
            except BaseException as error:  # a cancelled check would leave the connection open
                await connection.close()
                if not isinstance(error, psycopg.OperationalError):
                    raise
            else:
                return connection
        connection = await psycopg.AsyncConnection[tuple[Any, ...]].connect(self._address.conninfo, autocommit=True)
        try:
            async with self._migrating:
                if not self._is_migrated:
                    await migrate(connection, self._address)
                    self._is_migrated = True
        except BaseException:
            await connection.close()
            raise
        return connection

    async def _release(self, connection: PostgresConnection) -> None:
        is_usable = not connection.closed and connection.info.transaction_status is psycopg.pq.TransactionStatus.IDLE
        if is_usable and not self._is_closed:
            self._idle.append(connection)
        else:
            await connection.close()


MAX_WORD_BYTES = 2_046
"""PostgreSQL's limit for one word."""

_AUDIENCE_PREFIX = "place:"
"""Prefix of an item's audience, which is a word of the same index. No real word has a colon."""

_LONG_WORD_PREFIX = "long:"
"""Prefix of a digest that replaces a long word."""


class WordTokenizer:
    """Splits texts with SQLite's own tokenizer, so that both stores find the same words. Any thread may use it.

    PostgreSQL's parser keeps addresses, paths and hyphenated words whole, and its dictionaries use other stems.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._opened: sqlite3.Connection | None = None

    def tokenize(self, texts: Sequence[str]) -> list[frozenset[str]]:
        words: list[set[str]] = [set() for _ in texts]
        with self._lock:
            database = self._memory_database()
            database.execute("BEGIN")
            database.executemany("INSERT INTO texts (rowid, text) VALUES (?, ?)", enumerate(texts))
            for number, word in database.execute("SELECT doc, term FROM words"):
                words[int(number)].add(_bounded_word(str(word)))
            database.execute("ROLLBACK")
        return list(map(frozenset, words))

    def close(self) -> None:
        """Free the memory. The next `tokenize` allocates it again."""
        with self._lock:
            if self._opened is not None:
                self._opened.close()
            self._opened = None

    def _memory_database(self) -> sqlite3.Connection:
        if self._opened is None:
            self._opened = sqlite3.connect(":memory:", check_same_thread=False, isolation_level=None)
            self._opened.execute(
                "CREATE VIRTUAL TABLE texts USING fts5 (text, content='', tokenize='porter unicode61')"
            )
            self._opened.execute("CREATE VIRTUAL TABLE words USING fts5vocab (texts, 'instance')")
        return self._opened


def words_tsvector(words: frozenset[str], audience: str) -> str:
    """Return a `tsvector` of the words and the audience, so that one index finds both."""
    return " ".join(map(quoted_word, (f"{_AUDIENCE_PREFIX}{audience}", *sorted(words))))


def words_query(words: Iterable[str], audiences: Sequence[str], joined_by: Literal["&", "|"]) -> str:
    """Return a `tsquery` for items of one of the audiences. They have all words (`&`), or at least one (`|`)."""
    of_audiences = " | ".join(quoted_word(_AUDIENCE_PREFIX + audience) for audience in audiences)
    return f"({of_audiences}) & ({f' {joined_by} '.join(map(quoted_word, words))})"


def quoted_word(word: str) -> str:
    escaped = word.replace("\\", "\\\\").replace("'", "''")
    return f"'{escaped}'"


def _bounded_word(word: str) -> str:
    return word if len(word.encode()) <= MAX_WORD_BYTES else f"{_LONG_WORD_PREFIX}{sha256(word.encode()).hexdigest()}"


class EncodedText(NamedTuple):
    """A text in the form that the database stores."""

    code: str
    """The code of its vector, as bits."""
    vector: str
    words: frozenset[str]


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
    "AND place = ANY(%(audiences)s) AND kind = ANY(%(kinds)s) AND (expires_at IS NULL OR expires_at > %(now)s) "
    "ORDER BY code <~> %(code)s::text::bit(512), number LIMIT %(limit)s"
)
_MATCHING = (
    "SELECT asked.query_index, found.number FROM unnest(%(queries)s::text[]) "
    "WITH ORDINALITY AS asked (query, query_index) "
    # MATERIALIZED makes PostgreSQL use the index. With just the limit it would scan the table.
    "CROSS JOIN LATERAL ("
    "WITH holding AS MATERIALIZED (SELECT number FROM orga_knowledge.items WHERE words @@ asked.query::tsquery) "
    "SELECT number FROM holding LIMIT %(limit)s"
    ") AS found ORDER BY asked.query_index"
)


class PostgresTransaction(KnowledgeTransaction[EncodedText]):
    backend = "postgres"
    schema_version = VERSION
    tables = "orga_knowledge."
    vector_column = "vectors.vector::real[]"
    byte_order = ' COLLATE "C"'
    without_index = ""

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
            words = encoded[searchable_text(item)].words
            tsvector = words_tsvector(words, audience_digits(item.scope, item.owner))
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
            text = encoded[searchable_text(item)]
            rows.append({"embedder": self.embedder, "code": text.code, "vector": text.vector, "id": item.id})
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

    def word_queries(self, text: str, audiences: Sequence[str]) -> WordQueries:
        terms = list(filter(None, self._tokenizer.tokenize(query_terms(text))))
        words = sorted(frozenset[str]().union(*terms))
        each = [words_query(term, audiences, "&") for term in terms]
        return WordQueries(each, words_query(words, audiences, "&"), words_query(words, audiences, "|"))

    async def matching_numbers(self, queries: Sequence[str], limit: int) -> list[list[int]]:
        by_query = defaultdict[int, list[int]](list)
        for index, number in await self.rows(_MATCHING, {"queries": queries, "limit": limit}):
            by_query[index].append(number)
        return [by_query[index] for index in range(1, len(queries) + 1)]  # PostgreSQL counts from 1

    async def newest_matching(self, query: str, limit: int) -> list[int]:
        rows = await self.rows(
            "SELECT number FROM orga_knowledge.items WHERE words @@ %(query)s::text::tsquery "
            "ORDER BY number DESC LIMIT %(limit)s",
            {"query": query, "limit": limit},
        )
        return [number for (number,) in rows]


T = TypeVar("T")


class PostgresStore(DatabaseStore[EncodedText]):
    """A `KnowledgeStore` in a database. Its tables are created when they are first needed."""

    def __init__(self, address: PostgresAddress, embedder: Embedder, *, now: Callable[[], datetime] = utc_now) -> None:
        super().__init__(address.shown, embedder, now)
        self._connections = PostgresConnections(address)
        self._tokenizer = WordTokenizer()

    async def purge(self) -> None:
        """Remove deleted rows from the tables and indexes. The server's log and its backups do not belong to us."""
        async with self._connections.without_transaction() as connection:
            await connection.execute("VACUUM orga_knowledge.items, orga_knowledge.vectors")

    async def close(self) -> None:
        self._tokenizer.close()
        await self._connections.close()

    async def _read(self, work: Work[EncodedText, T]) -> T:
        async with self._connections.transaction(is_writing=False) as connection:
            return await work(PostgresTransaction(connection, self._tokenizer, self._embedder.name))

    async def _write(self, work: Work[EncodedText, T]) -> T:
        async with self._connections.transaction(is_writing=True) as connection:
            return await work(PostgresTransaction(connection, self._tokenizer, self._embedder.name))

    def _encode(self, vectors: Mapping[str, Sequence[float]]) -> dict[str, EncodedText]:
        words = self._tokenizer.tokenize(list(vectors))
        return {
            text: EncodedText(code_bits(vector_code(vector)), vector_text(vector), own_words)
            for (text, vector), own_words in zip(vectors.items(), words, strict=True)
        }
