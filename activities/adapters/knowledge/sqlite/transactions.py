"""All or nothing."""

import sqlite3
from collections.abc import Generator
from contextlib import contextmanager


@contextmanager
def transaction(connection: sqlite3.Connection, begin: str) -> Generator[None]:
    """Commit what is done within, or undo it where it fails.

    Args:
        connection: Which is in no transaction yet.
        begin: `BEGIN` to read what fits together, `BEGIN IMMEDIATE` to write.
    """
    connection.execute(begin)
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:  # a full disk has undone it by itself
            connection.execute("ROLLBACK")
        raise
