"""The PostgreSQL database: address, tables, migrations, and explanations of PostgreSQL's errors."""

from array import array
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, LiteralString
from urllib.parse import quote

import psycopg
from psycopg import AsyncConnection
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from orga.activities.adapters.knowledge.transactions import DamagedItem
from orga.activities.adapters.models.errors import redacted_text
from orga.activities.knowledge.ports import KnowledgeError
from orga.activities.knowledge.vectors import MAX_BITS

CONNECT_S = 5
"""Seconds to connect."""

_LOCAL_HOSTS = ("localhost", "127.0.0.1", "::1")


@dataclass(frozen=True)
class PostgresAddress:
    """The address of a database. People see only `shown`."""

    conninfo: str = field(repr=False)
    password: str = field(repr=False)
    shown: str
    """`postgresql://host:port/database`, the form for people."""
    variable: str
    """The environment variable that contains it, for error messages."""


def parse_address(dsn: str, variable: str) -> PostgresAddress:
    """Return the address in a variable. TLS is required for a remote server unless the address sets it otherwise.

    Raise ValueError if it is no address. The error's text repeats nothing of the address.
    """
    try:
        parts = {name: str(value) for name, value in conninfo_to_dict(dsn).items() if value is not None}
    except psycopg.Error:
        raise ValueError(
            f"{variable} holds no address of a database; write it like postgresql://user:password@host/database"
        ) from None
    host, name = parts.get("host", ""), parts.get("dbname", parts.get("user", ""))
    is_local = all(each in _LOCAL_HOSTS or each.startswith(("/", "@")) for each in host.split(",") if each)
    defaults = {"connect_timeout": str(CONNECT_S), "application_name": "orga"}
    if not is_local:
        defaults["sslmode"] = "require"
    port = parts.get("port", "5432")
    return PostgresAddress(
        conninfo=make_conninfo("", **{**defaults, **parts}),
        password=parts.get("password", ""),
        shown=f"postgresql://{quote(host, safe=',/:') or 'localhost'}:{quote(port, safe=',')}/{quote(name)}",
        variable=variable,
    )


_BUSY = {"53300": "has no connection left", "40001": "is busy", "40P01": "is busy", "55P03": "is busy"}
"""Texts by SQLSTATE, for failures after which the same operation may succeed."""

_NO_EXTENSION = {"0A000", "58P01"}
"""SQLSTATEs of a server on which pgvector is not installed."""

_FAILURES: dict[str, tuple[str, str]] = {
    "53100": ("DiskFull", "{store} has no room left; nothing was stored: make room on its server"),
    "53200": ("DiskFull", "{store} has no memory left; nothing was stored: make room on its server"),
    "XX002": ("Corrupt", "an index of {store} is damaged; run: orga knowledge reindex"),
    "XX001": (
        "Corrupt",
        "{store} is damaged ({cause}); restore the database from its last backup, or save what can still be read (orga "
        "knowledge export FILE) and import it into an empty one",
    ),
    "25006": ("ReadOnly", "{store} cannot be written, as a replica cannot; correct the address in {variable}"),
    "42501": (
        "Unreachable",
        "{store} does not let this user do it ({cause}); grant it, or name another user in {variable}",
    ),
}
"""Kind and text by SQLSTATE."""


@contextmanager
def raising_knowledge_errors(address: PostgresAddress) -> Generator[None]:
    """Raise a `KnowledgeError` for each error of PostgreSQL, of its connection, of a timeout, or of stored values."""
    try:
        yield
    except DamagedItem as error:
        raise KnowledgeError(
            f"the knowledge store {address.shown} is damaged ({error}); restore the database from its last backup, or "
            "let go of the item: orga knowledge forget --id ID",
            kind="Corrupt",
        ) from error
    except psycopg.Error as error:
        raise knowledge_error(error, address) from None  # the error's text and connection contain the address
    except TimeoutError:
        raise _unreachable_error(address, "no answer in time") from None
    except UnicodeEncodeError:
        raise KnowledgeError("a text holds characters that no database takes", kind="InvalidItem") from None


def knowledge_error(error: psycopg.Error, address: PostgresAddress) -> KnowledgeError:
    """Return the failure by its SQLSTATE. An error without one is a failure of the connection."""
    state, store = error.sqlstate or "", f"the knowledge store {address.shown}"
    cause = redacted_text(str(error), address.password) or type(error).__name__
    if state in _FAILURES:
        kind, text = _FAILURES[state]
        message = text.format(store=store, cause=cause, variable=address.variable)
        return KnowledgeError(message, kind=kind, retryable=kind == "DiskFull")
    if state in _BUSY:
        return KnowledgeError(f"{store} {_BUSY[state]}; try again", kind="Busy", retryable=True)
    if isinstance(error, psycopg.OperationalError) or not state:
        return _unreachable_error(address, cause)
    return KnowledgeError(f"{store} failed: {cause}; look at its log, then try again", kind="Unreachable")


def _unreachable_error(address: PostgresAddress, cause: str) -> KnowledgeError:
    return KnowledgeError(
        f"the knowledge store {address.shown} cannot be reached: {cause}; start its server, or correct the address in "
        f"{address.variable}",
        kind="Unreachable",
        retryable=True,
    )


PostgresConnection = AsyncConnection[tuple[Any, ...]]

MIGRATION_LOCK = 0x6F726761
"""`orga` as a number: the advisory lock of every writer and migration, so that only one runs at a time."""

MIGRATIONS: tuple[tuple[LiteralString, ...], ...] = (
    (
        # `place` is the audience: the scope with its owner. `claim` is the digest of a fact's audience, subject and
        # predicate. `words` has the words of the text and the labels, and the audience.
        """CREATE TABLE orga_knowledge.items (
            number BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
            id TEXT COLLATE "C" NOT NULL UNIQUE,
            place TEXT NOT NULL,
            claim TEXT NOT NULL,
            kind TEXT NOT NULL,
            text TEXT NOT NULL,
            labels TEXT NOT NULL,
            scope TEXT NOT NULL,
            tenant TEXT NOT NULL,
            "user" TEXT NOT NULL,
            agent TEXT NOT NULL,
            key TEXT NOT NULL,
            subject TEXT NOT NULL,
            predicate TEXT NOT NULL,
            object TEXT NOT NULL,
            directory TEXT NOT NULL,
            language TEXT NOT NULL,
            confidence DOUBLE PRECISION NOT NULL,
            source TEXT NOT NULL,
            workflow_id TEXT NOT NULL,
            iteration INTEGER NOT NULL,
            model TEXT NOT NULL,
            taint TEXT NOT NULL,
            expires_at BIGINT,
            stored_at BIGINT NOT NULL,
            contradicted_by TEXT NOT NULL DEFAULT '',
            words TSVECTOR NOT NULL
        )""",
        # Every recall scans the entries that wait to be indexed. So they are limited to 256 kB, not to 4 MB.
        "CREATE INDEX items_by_words ON orga_knowledge.items USING gin (words) WITH (gin_pending_list_limit = 256)",
        "CREATE INDEX items_by_claim ON orga_knowledge.items (claim, stored_at) WHERE claim != ''",
        "CREATE INDEX items_by_contradiction ON orga_knowledge.items (contradicted_by) WHERE contradicted_by != ''",
        "CREATE INDEX items_by_directory ON orga_knowledge.items (directory, place)",
        "CREATE INDEX items_by_language ON orga_knowledge.items (language, place) WHERE language != ''",
        "CREATE INDEX items_by_time ON orga_knowledge.items (place, stored_at)",
        "CREATE INDEX items_by_run ON orga_knowledge.items (workflow_id) WHERE workflow_id != ''",
        "CREATE INDEX items_by_subject ON orga_knowledge.items (subject) WHERE subject != ''",
        "CREATE INDEX items_by_source ON orga_knowledge.items (source) WHERE source != ''",
        # `code` has one bit for each direction of `vector`. Codes are quick to compare, so they choose the candidates.
        # The other columns repeat those of the item, so that the search for candidates reads one table only.
        """CREATE TABLE orga_knowledge.vectors (
            number BIGINT PRIMARY KEY REFERENCES orga_knowledge.items (number) ON DELETE CASCADE,
            place TEXT NOT NULL,
            kind TEXT NOT NULL,
            expires_at BIGINT,
            embedder TEXT NOT NULL,
            code BIT(512) NOT NULL,
            vector VECTOR NOT NULL
        ) WITH (toast_tuple_target = 256)""",
        "CREATE INDEX vectors_by_place ON orga_knowledge.vectors (place, embedder)",
    ),
    (
        # The index has all columns that the search for candidates reads. It is a seventh of the table's size.
        "CREATE INDEX vectors_by_code ON orga_knowledge.vectors (place, embedder) "
        "INCLUDE (kind, expires_at, number, code)",
        "DROP INDEX orga_knowledge.vectors_by_place",
    ),
    (
        # The root's directory is "", and so is that of all items that are no conventions. With `kind` in the index, the
        # few conventions of the root are found among them.
        "CREATE INDEX items_by_folder ON orga_knowledge.items (directory, place, kind)",
        "DROP INDEX orga_knowledge.items_by_directory",
    ),
)
"""The statements of each version, in order. A version that has been released is never changed."""

VERSION = len(MIGRATIONS)


async def migrate(connection: PostgresConnection, address: PostgresAddress) -> None:
    """Migrate a database to this version, all steps or none. Other processes wait meanwhile.

    Raise KnowledgeError if it has a newer version, or pgvector is missing. The caller then has to close the
    connection, which still holds the lock.
    """
    if await _schema_version(connection, address) == VERSION:
        return
    # Lock before the transaction begins: a transaction that waited for the lock might not see the new tables.
    await connection.execute("SELECT pg_advisory_lock(%s)", (MIGRATION_LOCK,))
    async with connection.transaction():
        await _make_tables(connection, address)
    await connection.execute("SELECT pg_advisory_unlock(%s)", (MIGRATION_LOCK,))


async def _make_tables(connection: PostgresConnection, address: PostgresAddress) -> None:
    version = await _schema_version(connection, address)  # another process may have been faster
    if version < VERSION:
        await _ensure_extension(connection, address)
        await connection.execute("CREATE SCHEMA IF NOT EXISTS orga_knowledge")
        await connection.execute("CREATE TABLE IF NOT EXISTS orga_knowledge.version (version INTEGER NOT NULL)")
        for statements in MIGRATIONS[version:]:
            for statement in statements:
                await connection.execute(statement)
        await connection.execute("DELETE FROM orga_knowledge.version")
        await connection.execute("INSERT INTO orga_knowledge.version VALUES (%s)", (VERSION,))


async def _ensure_extension(connection: PostgresConnection, address: PostgresAddress) -> None:
    is_there = await (await connection.execute("SELECT 1 FROM pg_extension WHERE extname = 'vector'")).fetchone()
    if is_there:
        return
    try:
        await connection.execute("CREATE EXTENSION vector")
    except psycopg.Error as error:
        remedy = "let an administrator run there: CREATE EXTENSION vector"
        if error.sqlstate in _NO_EXTENSION:
            remedy = "install pgvector on its server, as the image pgvector/pgvector has it"
        cause = redacted_text(str(error), address.password)
        text = f"the knowledge store {address.shown} lacks pgvector ({cause}); {remedy}"
        raise KnowledgeError(text, kind="Unreachable") from None


async def _schema_version(connection: PostgresConnection, address: PostgresAddress) -> int:
    """Return the version of the tables, or 0 if there are none."""
    table = await (await connection.execute("SELECT to_regclass('orga_knowledge.version')")).fetchone()
    if not table or table[0] is None:
        return 0
    row = await (await connection.execute("SELECT version FROM orga_knowledge.version")).fetchone()
    version = int(row[0]) if row else 0
    if version > VERSION:
        raise KnowledgeError(
            f"the knowledge store {address.shown} has schema {version}, and this version of orga knows {VERSION}: "
            f"it was written by a newer one; upgrade orga, or name another database in {address.variable}",
            kind="NewerSchema",
        )
    return version


def code_bits(code: int) -> str:
    """Return a code as text of type `bit(512)`."""
    return f"{code:0{MAX_BITS}b}"


def vector_text(vector: Sequence[float]) -> str:
    """Return the text of a `vector`, with numbers rounded to the 4 bytes that every store keeps."""
    return f"[{','.join(map(repr, array('f', vector)))}]"
