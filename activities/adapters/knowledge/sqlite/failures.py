"""Explains SQLite's errors to people: the place, the cause and the remedy."""

import sqlite3
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from orga.activities.adapters.knowledge.rows import DamagedItem
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
"""By SQLite's code: the kind, the text for people, and whether the same operation may succeed later."""


def knowledge_error(error: sqlite3.Error, path: Path) -> KnowledgeError:
    """Return the failure by the lowest byte of SQLite's code. The other bytes are variants."""
    code = getattr(error, "sqlite_errorcode", 0)
    if code == sqlite3.SQLITE_CORRUPT_VTAB:
        message = f"the text index of the knowledge store {path} is damaged ({error}); run: orga knowledge reindex"
        return KnowledgeError(message, kind="Corrupt")
    if code & 0xFF in {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}:
        return corrupt_file_error(path, str(error))
    if "decode to UTF-8" in str(error):  # an error of Python without a code, whose text contains the stored text
        return corrupt_file_error(path, "a text in it is no UTF-8")
    kind, what, is_retryable = _FAILURES.get(code & 0xFF, ("Unreachable", f"failed: {error}; look at its disk", True))
    return KnowledgeError(f"the knowledge store {path} {what}", kind=kind, retryable=is_retryable)


def busy_log_error(path: Path) -> KnowledgeError:
    """Return the failure of a write-ahead log that could not be emptied."""
    return KnowledgeError(
        f"what was forgotten or replaced is recalled no more, but may remain in {path}-wal: another process reads the "
        "knowledge store; give the same command again once that one is done",
        kind="Busy",
        retryable=True,
    )


def corrupt_file_error(path: Path, what: str) -> KnowledgeError:
    """Return the failure of a damaged file, with the remedy."""
    return KnowledgeError(
        f"the knowledge store {path} is damaged ({what}). The way back: save what can still be read (orga knowledge "
        f"export FILE), move {path} and {path}-wal away, then orga knowledge import FILE (that, or the last export)",
        kind="Corrupt",
    )


def unreadable_items_error(path: Path, lost: int) -> KnowledgeError:
    """Return the failure of a file with so many unreadable items, with the remedy."""
    return corrupt_file_error(path, f"{lost:,} of its items cannot be read")
