"""A few connections, made when needed and looked at before they are used again: a server may have restarted."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from typing import Any, LiteralString

import psycopg

from orga.activities.adapters.knowledge.postgres.address import Address
from orga.activities.adapters.knowledge.postgres.schema import LOCK, Connection, migrate, told

MOST = 8
"""Connections of one store; servers let in a hundred from all workers together."""

OPERATION_S = 120.0
"""For one transaction, the wait for other writers included."""


class Connections:
    """Those of one store, within one event loop."""

    def __init__(self, place: Address) -> None:
        self._place = place
        self._idle: list[Connection] = []
        self._free = asyncio.Semaphore(MOST)
        self._is_closed = False
        self._is_migrated = False
        self._migrating = asyncio.Lock()

    @asynccontextmanager
    async def reading(self) -> AsyncGenerator[Connection]:
        """Give a connection in a transaction that sees one state of the store.

        Raises:
            KnowledgeError: The database cannot be reached, or refuses.
        """
        async with self._transaction("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY") as connection:
            yield connection

    @asynccontextmanager
    async def writing(self) -> AsyncGenerator[Connection]:
        """Give a connection in a transaction of the only writer.

        Raises:
            KnowledgeError: Nothing was written.
        """
        async with self._transaction("BEGIN") as connection:
            await connection.execute("SELECT pg_advisory_xact_lock(%s)", (LOCK,))
            yield connection

    async def close(self) -> None:
        """Close those that are idle; the others close when they are given back."""
        self._is_closed = True
        idle, self._idle = self._idle, []
        for connection in idle:
            await connection.close()

    @asynccontextmanager
    async def alone(self) -> AsyncGenerator[Connection]:
        """Give a connection that is in no transaction.

        Raises:
            KnowledgeError: The database cannot be reached, or refuses.
        """
        with told(self._place):
            async with asyncio.timeout(OPERATION_S), self._free:
                connection = await self._sound()
                try:
                    yield connection
                finally:
                    await self._give_back(connection)

    @asynccontextmanager
    async def _transaction(self, begin: LiteralString) -> AsyncGenerator[Connection]:
        async with self.alone() as connection:
            try:
                await connection.execute(begin)
                yield connection
                await connection.execute("COMMIT")
            except BaseException:
                await _rolled_back(connection)
                raise

    async def _sound(self) -> Connection:
        """Return a connection that answers: one that was idle, else a new one."""
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

    async def _migrate(self, connection: Connection) -> None:
        async with self._migrating:
            if not self._is_migrated:
                await migrate(connection, self._place)
                self._is_migrated = True

    async def _give_back(self, connection: Connection) -> None:
        is_usable = not connection.closed and connection.info.transaction_status is psycopg.pq.TransactionStatus.IDLE
        if is_usable and not self._is_closed:
            self._idle.append(connection)
        else:
            await connection.close()


async def _rolled_back(connection: Connection) -> None:
    with suppress(psycopg.Error):
        await connection.execute("ROLLBACK")
