"""Connections of the embedded store, one for each thread. The file is made private before anything is written."""

import os
import sqlite3
from contextlib import suppress
from pathlib import Path
from threading import Lock, local
from time import monotonic, sleep

from orga.activities.adapters.knowledge.sqlite.schema import migrate, raising_knowledge_errors

WAIT_S = 30.0
"""Seconds that a writer waits for another writer of any process."""


class SqliteConnections:
    """Opens the file when it is first needed, migrates it once, and closes all connections."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._own = local()
        self._all: list[sqlite3.Connection] = []
        self._lock = Lock()
        self._is_ready = False

    def current(self) -> sqlite3.Connection:
        """Return the connection of this thread.

        Raises:
            KnowledgeError: The file cannot be opened, or is not a knowledge store.
        """
        known: sqlite3.Connection | None = getattr(self._own, "connection", None)
        if known is None:
            with raising_knowledge_errors(self._path):
                known = self._own.connection = self._open()
        return known

    def close(self) -> None:
        """Close all connections. Call it when no thread uses one."""
        with self._lock:
            for connection in self._all:
                with suppress(sqlite3.Error):
                    connection.close()
            self._all.clear()

    def _open(self) -> sqlite3.Connection:
        with self._lock:
            if not self._is_ready:
                _make_private(self._path)
            connection = sqlite3.connect(self._path, timeout=WAIT_S, isolation_level=None, check_same_thread=False)
            try:
                connection.execute("PRAGMA foreign_keys = ON")
                connection.execute("PRAGMA secure_delete = ON")  # overwrites forgotten items
                if not self._is_ready:
                    migrate(connection, self._path)
                    _enable_write_ahead(connection)
                    self._is_ready = True
            except BaseException:
                connection.close()
                raise
            self._all.append(connection)
            return connection


def _make_private(path: Path) -> None:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    if not path.exists():
        os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))


def _enable_write_ahead(connection: sqlite3.Connection) -> None:
    """Let readers read while one writes. SQLite does not wait for others that are opening a new file, so this does."""
    until = monotonic() + WAIT_S
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or monotonic() > until:
                raise
            sleep(0.02)
        else:
            return
