"""Every kind of store in its own place, because the same contract holds for all.

The fixtures `opens`, `clock` and `store` give each test one store of each kind.
"""

from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import datetime
from pathlib import Path
from typing import Protocol

import pytest

from orga.activities.adapters.knowledge.embedders import HashingEmbedder
from orga.activities.adapters.knowledge.postgres.postgres_store import PostgresStore
from orga.activities.adapters.knowledge.postgres.schema import parse_address
from orga.activities.adapters.knowledge.sqlite.sqlite_store import SqliteStore
from orga.activities.knowledge.ports import Embedder, KnowledgeStore
from orga.workflows.types.knowledge import StoredItem
from tests.support.knowledge.items import Clock
from tests.support.parts.postgres import kept_postgres


class OpenStore(Protocol):
    """Opens the same place several times. Each store has its own connections, as if in another process."""

    def __call__(self, *, now: Callable[[], datetime], embedder: Embedder = ...) -> KnowledgeStore: ...


@asynccontextmanager
async def sqlite_place(folder: Path) -> AsyncGenerator[OpenStore]:
    """Yield a function that opens one file, and close all its stores at the end."""
    opened: list[SqliteStore] = []

    def open_store(*, now: Callable[[], datetime], embedder: Embedder | None = None) -> KnowledgeStore:
        opened.append(SqliteStore(folder / "knowledge" / "store.db", embedder or HashingEmbedder(), now=now))
        return opened[-1]

    yield open_store
    for store in opened:
        await store.close()


@asynccontextmanager
async def postgres_place(folder: Path) -> AsyncGenerator[OpenStore]:
    """Yield a function that opens one database of the process's shared server, and close all its stores at the end."""
    del folder
    dsn = kept_postgres().database()
    opened: list[PostgresStore] = []

    def open_store(*, now: Callable[[], datetime], embedder: Embedder | None = None) -> KnowledgeStore:
        opened.append(PostgresStore(parse_address(dsn, "DSN"), embedder or HashingEmbedder(), now=now))
        return opened[-1]

    yield open_store
    for store in opened:
        await store.close()


PLACES: dict[str, Callable[[Path], AbstractAsyncContextManager[OpenStore]]] = {
    "sqlite": sqlite_place,
    "postgres": postgres_place,
}
"""Functions by backend, each of which yields an opener of stores in a new, empty place."""


@pytest.fixture(params=PLACES)
async def opens(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncGenerator[OpenStore]:
    async with PLACES[request.param](tmp_path) as open_store:
        yield open_store


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def store(opens: OpenStore, clock: Clock) -> KnowledgeStore:
    return opens(now=clock)


async def all_items(store: KnowledgeStore) -> list[StoredItem]:
    return [item async for item in store.items()]
