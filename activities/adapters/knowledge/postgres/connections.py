"""A few connections, opened when needed and checked before they are reused, because a server may have restarted."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from typing import Any, LiteralString

import psycopg

from orga.activities.adapters.knowledge.postgres.schema import (
    MIGRATION_LOCK,
    PostgresAddress,
    PostgresConnection,
    migrate,
    raising_knowledge_errors,
)

MAX_CONNECTIONS = 8
"""Connections of one store. Servers usually accept a hundred from all workers together."""

OPERATION_TIMEOUT_S = 120.0
"""Seconds for one transaction, with the wait for other writers."""


class PostgresConnections:
    """The connections of one store, within one event loop."""

    def __init__(self, place: PostgresAddress) -> None:
        self._place = place
        self._idle: list[PostgresConnection] = []
        self._free = asyncio.Semaphore(MAX_CONNECTIONS)
        self._is_closed = False
        self._is_migrated = False
        self._migrating = asyncio.Lock()

    @asynccontextmanager
    async def read_transaction(self) -> AsyncGenerator[PostgresConnection]:
        """Yield a connection in a transaction that sees one state of the store.

        Raises:
            KnowledgeError: The database cannot be reached, or refuses.
        """
        async with self._transaction("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY") as connection:
            yield connection

    @asynccontextmanager
    async def write_transaction(self) -> AsyncGenerator[PostgresConnection]:
        """Yield a connection in a transaction of the only writer.

        Raises:
            KnowledgeError: Nothing was written.
        """
        async with self._transaction("BEGIN") as connection:
            await connection.execute("SELECT pg_advisory_xact_lock(%s)", (MIGRATION_LOCK,))
            yield connection

    async def close(self) -> None:
        """Close idle connections. The others close when they are returned."""
        self._is_closed = True
        idle, self._idle = self._idle, []
        for connection in idle:
            await connection.close()

    @asynccontextmanager
    async def without_transaction(self) -> AsyncGenerator[PostgresConnection]:
        """Yield a connection that is in no transaction.

        Raises:
            KnowledgeError: The database cannot be reached, or refuses.
        """
        with raising_knowledge_errors(self._place):
            async with asyncio.timeout(OPERATION_TIMEOUT_S), self._free:
                connection = await self._working_connection()
                try:
                    yield connection
                finally:
                    await self._give_back(connection)

    @asynccontextmanager
    async def _transaction(self, begin: LiteralString) -> AsyncGenerator[PostgresConnection]:
        async with self.without_transaction() as connection:
            try:
                await connection.execute(begin)
                yield connection
                await connection.execute("COMMIT")
            except BaseException:
                await _roll_back(connection)
                raise

    async def _working_connection(self) -> PostgresConnection:
        """Return a connection that answers: an idle one, or else a new one."""
        while self._idle:
            connection = self._idle.pop()
            try:
                await connection.execute("SELECT 1")
            except psycopg.OperationalError:
                await connection.close()
            else:
                return connection
        connection = await psycopg.AsyncConnection[tuple[Any, ...]].connect(self._place.conninfo, autocommit=True)
        try:
            await self._migrate(connection)
        except BaseException:
            await connection.close()
            raise
        return connection

    async def _migrate(self, connection: PostgresConnection) -> None:
        async with self._migrating:
            if not self._is_migrated:
                await migrate(connection, self._place)
                self._is_migrated = True

    async def _give_back(self, connection: PostgresConnection) -> None:
        is_usable = not connection.closed and connection.info.transaction_status is psycopg.pq.TransactionStatus.IDLE
        if is_usable and not self._is_closed:
            self._idle.append(connection)
        else:
            await connection.close()


async def _roll_back(connection: PostgresConnection) -> None:
    with suppress(psycopg.Error):
        await connection.execute("ROLLBACK")
