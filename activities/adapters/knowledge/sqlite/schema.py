"""The SQLite file: tables, migrations, and explanations of SQLite's errors."""

import sqlite3
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from orga.activities.adapters.knowledge.transactions import DamagedItem
from orga.activities.knowledge.ports import KnowledgeError


@contextmanager
def raising_knowledge_errors(path: Path) -> Generator[None]:
    """Raise a `KnowledgeError` for each error of SQLite or of the file, and for damaged values."""
    try:
        yield
    except DamagedItem as error:
        raise corrupt_file_error(path, str(error)) from error
    except sqlite3.Error as error:
        raise knowledge_error(error, path) from error
    except OSError as error:
        raise KnowledgeError(
            f"the knowledge store {path} cannot be opened: {error.strerror}; make its folder writable, or set "
            "[knowledge] path to another place",
            kind="Unreachable",
        ) from error


_FAILURES: dict[int, tuple[str, str, bool]] = {
    sqlite3.SQLITE_BUSY: ("Busy", "is held by another process; try again once that one is done", True),
    sqlite3.SQLITE_LOCKED: ("Busy", "is held by another process; try again once that one is done", True),
    sqlite3.SQLITE_FULL: ("DiskFull", "has no room left and nothing was stored; make room on its disk", True),
    sqlite3.SQLITE_READONLY: ("ReadOnly", "cannot be written; make it and its folder writable", False),
    sqlite3.SQLITE_PERM: ("ReadOnly", "cannot be written; make it and its folder writable", False),
    sqlite3.SQLITE_CANTOPEN: (
        "Unreachable",
        "cannot be opened; make its folder writable, or set [knowledge] path to another place",
        False,
    ),
}
"""The failure by SQLite's code: its kind, the text for people, and whether the same operation may succeed later."""


def knowledge_error(error: sqlite3.Error, path: Path) -> KnowledgeError:
    """Return the error for people. The lowest byte of SQLite's code decides, because other bytes only refine it."""
    code = getattr(error, "sqlite_errorcode", 0)
    if code == sqlite3.SQLITE_CORRUPT_VTAB:
        message = f"the text index of the knowledge store {path} is damaged ({error}); run: orga knowledge reindex"
        return KnowledgeError(message, kind="Corrupt")
    if code & 0xFF in {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}:
        return corrupt_file_error(path, str(error))
    if "decode to UTF-8" in str(error):  # Python's error has no code, and its text contains the stored text
        return corrupt_file_error(path, "a text in it is no UTF-8")
    kind, what, is_retryable = _FAILURES.get(code & 0xFF, ("Unreachable", f"failed: {error}; look at its disk", True))
    return KnowledgeError(f"the knowledge store {path} {what}", kind=kind, retryable=is_retryable)


def corrupt_file_error(path: Path, what: str) -> KnowledgeError:
    return KnowledgeError(
        f"the knowledge store {path} is damaged ({what}). The way back: save what can still be read (orga knowledge "
        f"export FILE), move {path} and {path}-wal away, then orga knowledge import FILE (that, or the last export)",
        kind="Corrupt",
    )


def unreadable_items_error(path: Path, lost: int) -> KnowledgeError:
    return corrupt_file_error(path, f"{lost:,} of its items cannot be read")


@contextmanager
def transaction(connection: sqlite3.Connection, begin: str) -> Generator[None]:
    """Commit the block's changes, or roll them back if it fails.

    `begin` is `BEGIN` for consistent reads, and `BEGIN IMMEDIATE` to write.
    """
    connection.execute(begin)
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:  # after a full disk, SQLite has rolled back itself
            connection.execute("ROLLBACK")
        raise


APPLICATION_ID = 0x6F726761
"""`orga` as a number. It identifies our files."""

MIGRATIONS: tuple[tuple[str, ...], ...] = (
    (
        # `place` is the audience: the scope with its owner. `claim` is the digest of a fact's audience, subject and
        # predicate.
        """CREATE TABLE items (
            number INTEGER PRIMARY KEY AUTOINCREMENT,
            id TEXT NOT NULL UNIQUE,
            place TEXT NOT NULL,
            claim TEXT NOT NULL,
            kind TEXT NOT NULL,
            text TEXT NOT NULL,
            labels TEXT NOT NULL,
            scope TEXT NOT NULL,
            tenant TEXT NOT NULL,
            user TEXT NOT NULL,
            agent TEXT NOT NULL,
            key TEXT NOT NULL,
            subject TEXT NOT NULL,
            predicate TEXT NOT NULL,
            object TEXT NOT NULL,
            directory TEXT NOT NULL,
            language TEXT NOT NULL,
            confidence REAL NOT NULL,
            source TEXT NOT NULL,
            workflow_id TEXT NOT NULL,
            iteration INTEGER NOT NULL,
            model TEXT NOT NULL,
            taint TEXT NOT NULL,
            expires_at INTEGER,
            stored_at INTEGER NOT NULL,
            contradicted_by TEXT NOT NULL DEFAULT '',
            changed INTEGER NOT NULL
        )""",
        "CREATE INDEX items_by_claim ON items (claim, stored_at) WHERE claim != ''",
        "CREATE INDEX items_by_contradiction ON items (contradicted_by) WHERE contradicted_by != ''",
        "CREATE INDEX items_by_change ON items (changed)",
        "CREATE INDEX items_by_directory ON items (directory, place)",
        "CREATE INDEX items_by_language ON items (language, place) WHERE language != ''",
        "CREATE INDEX items_by_time ON items (place, stored_at)",
        "CREATE INDEX items_by_run ON items (workflow_id) WHERE workflow_id != ''",
        "CREATE INDEX items_by_subject ON items (subject) WHERE subject != ''",
        "CREATE INDEX items_by_source ON items (source) WHERE source != ''",
        """CREATE VIRTUAL TABLE words USING fts5 (
            text, labels, place, content='items', content_rowid='number', tokenize='porter unicode61'
        )""",
        """CREATE TRIGGER words_added AFTER INSERT ON items BEGIN
            INSERT INTO words (rowid, text, labels, place) VALUES (new.number, new.text, new.labels, new.place);
        END""",
        """CREATE TRIGGER words_gone AFTER DELETE ON items BEGIN
            INSERT INTO words (words, rowid, text, labels, place)
            VALUES ('delete', old.number, old.text, old.labels, old.place);
        END""",
        """CREATE TRIGGER words_changed AFTER UPDATE OF text, labels, place ON items BEGIN
            INSERT INTO words (words, rowid, text, labels, place)
            VALUES ('delete', old.number, old.text, old.labels, old.place);
            INSERT INTO words (rowid, text, labels, place) VALUES (new.number, new.text, new.labels, new.place);
        END""",
        # `code` has one bit for each direction of `vector`. Codes are quick to compare, so they choose the candidates.
        """CREATE TABLE vectors (
            number INTEGER PRIMARY KEY REFERENCES items (number) ON DELETE CASCADE,
            embedder TEXT NOT NULL,
            code BLOB NOT NULL,
            vector BLOB NOT NULL
        )""",
        "CREATE INDEX vectors_by_embedder ON vectors (embedder)",
        # `changed` counts writes, `erased` counts removals. They show a process that its copy in memory is out of date.
        "CREATE TABLE counters (name TEXT PRIMARY KEY, value INTEGER NOT NULL)",
        "INSERT INTO counters VALUES ('changed', 0), ('erased', 0)",
    ),
    (
        # The root's directory is "", and so is that of all items that are no conventions. With `kind` in the index, the
        # few conventions of the root are found among them.
        "CREATE INDEX items_by_folder ON items (directory, place, kind)",
        "DROP INDEX items_by_directory",
    ),
)
"""The statements of each version, in order. A version that has been released is never changed."""

VERSION = len(MIGRATIONS)


def migrate(connection: sqlite3.Connection, path: Path) -> None:
    """Migrate a file to this version, all steps or none. Raise KnowledgeError for a newer version or another file."""
    with transaction(connection, "BEGIN"):  # so that all reads of the file are consistent
        version = _schema_version(connection, path)
    if version == VERSION:
        return
    with transaction(connection, "BEGIN IMMEDIATE"):
        version = _schema_version(connection, path)  # another process may have been faster
        for statements in MIGRATIONS[version:]:
            for statement in statements:
                connection.execute(statement)
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        connection.execute(f"PRAGMA user_version = {VERSION}")


def _schema_version(connection: sqlite3.Connection, path: Path) -> int:
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    (table_count,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    if table_count and application != APPLICATION_ID:
        raise KnowledgeError(
            f"{path} is an SQLite file of something else; set [knowledge] path to another place", kind="Corrupt"
        )
    if version > VERSION:
        raise KnowledgeError(
            f"the knowledge store {path} has schema {version}, and this version of orga knows {VERSION}: a newer one "
            "wrote it; upgrade orga, or set [knowledge] path to another place",
            kind="NewerSchema",
        )
    if application == APPLICATION_ID and version < 1:
        raise corrupt_file_error(path, "it has no version")
    return int(version)
