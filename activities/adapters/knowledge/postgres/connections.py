"""A pool of PostgreSQL connections. Each is checked before reuse, because the server may have restarted."""

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

    @asynccontextmanager
    async def read_transaction(self) -> AsyncGenerator[PostgresConnection]:
        """Yield a connection in a read-only transaction that sees one snapshot of the store."""
        async with self._transaction("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY") as connection:
            yield connection

    @asynccontextmanager
    async def write_transaction(self) -> AsyncGenerator[PostgresConnection]:
        """Yield a connection in a transaction. No other writer runs at the same time."""
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
        with raising_knowledge_errors(self._address):
            async with asyncio.timeout(OPERATION_TIMEOUT_S), self._slots:
                connection = await self._working_connection()
                try:
                    yield connection
                finally:
                    await self._release(connection)

    @asynccontextmanager
    async def _transaction(self, begin: LiteralString) -> AsyncGenerator[PostgresConnection]:
        async with self.without_transaction() as connection:
            try:
                await connection.execute(begin)
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
            except psycopg.OperationalError:
                await connection.close()
            else:
                return connection
        connection = await psycopg.AsyncConnection[tuple[Any, ...]].connect(self._address.conninfo, autocommit=True)
        try:
            await self._migrate(connection)
        except BaseException:
            await connection.close()
            raise
        return connection

    async def _migrate(self, connection: PostgresConnection) -> None:
        async with self._migrating:
            if not self._is_migrated:
                await migrate(connection, self._address)
                self._is_migrated = True

    async def _release(self, connection: PostgresConnection) -> None:
        is_usable = not connection.closed and connection.info.transaction_status is psycopg.pq.TransactionStatus.IDLE
        if is_usable and not self._is_closed:
            self._idle.append(connection)
        else:
            await connection.close()
