"""The store in a real PostgreSQL: many workers, concurrent migrations, a restarting server, and errors."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import psycopg
import pytest
from psycopg.pq import TransactionStatus

from orga.activities.adapters.knowledge.embedders import HashingEmbedder
from orga.activities.adapters.knowledge.postgres.postgres_store import NEAREST, PostgresConnections, PostgresStore
from orga.activities.adapters.knowledge.postgres.schema import MIGRATIONS, VERSION, code_bits, parse_address
from orga.activities.knowledge.ports import KnowledgeError
from orga.workflows.types.knowledge import Erasure
from tests.support.knowledge.items import a_fact, a_text, query_for, texts
from tests.support.parts.postgres import PASSWORD, kept_postgres, running_postgres


@asynccontextmanager
async def stores(dsn: str, count: int = 1) -> AsyncGenerator[list[PostgresStore]]:
    made = [PostgresStore(parse_address(dsn, "DSN"), HashingEmbedder()) for _ in range(count)]
    try:
        yield made
    finally:
        for store in made:
            await store.close()


def execute(dsn: str, statement: str) -> list[tuple[object, ...]]:
    with psycopg.connect(dsn, autocommit=True) as connection:
        cursor = connection.execute(statement.encode())
        return cursor.fetchall() if cursor.description else []


async def test_workers_that_start_at_once_create_the_tables_once() -> None:
    dsn = kept_postgres().database()
    async with stores(dsn, 12) as many:
        await asyncio.gather(*(store.recall(query_for("anything")) for store in many))
    assert execute(dsn, "SELECT version FROM orga_knowledge.version") == [(VERSION,)]


async def test_a_database_of_an_older_version_is_migrated(monkeypatch: pytest.MonkeyPatch) -> None:
    dsn, schema = kept_postgres().database(), "orga.activities.adapters.knowledge.postgres.schema"
    for version in range(1, VERSION):
        monkeypatch.setattr(f"{schema}.VERSION", version)
        monkeypatch.setattr(f"{schema}.MIGRATIONS", MIGRATIONS[:version])
        async with stores(dsn) as (store,):
            await store.store([a_text(f"of version {version}")])
    monkeypatch.undo()
    async with stores(dsn) as (store,):
        assert texts(await store.recall(query_for("version")))[0].startswith("of version ")
        assert (await store.facts()).counts == {"document": VERSION - 1}
    assert execute(dsn, "SELECT version FROM orga_knowledge.version") == [(VERSION,)]


async def test_the_nearest_vectors_are_found_by_the_index_alone() -> None:
    """The table also holds the full vectors, so a scan of it takes several times as long."""
    dsn = kept_postgres().database()
    async with stores(dsn) as (store,):
        await store.store([a_text(f"text {number}") for number in range(50)])
    values = {"audiences": ["1"], "kinds": ["fact"], "now": 0, "embedder": "x", "code": code_bits(0), "limit": 5}
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("VACUUM ANALYZE orga_knowledge.vectors")
        for way in ("seqscan", "bitmapscan"):  # with so few rows it would scan the table
            connection.execute(f"SET enable_{way} = off".encode())
        plan = connection.execute(f"EXPLAIN {NEAREST}".encode(), values).fetchall()
    assert "Index Only Scan using vectors_by_code" in "\n".join(line for (line,) in plan)


async def test_damaged_values_are_reported_with_the_remedy() -> None:
    dsn = kept_postgres().database()
    async with stores(dsn) as (store,):
        [one] = await store.store([a_text("lorries")])
        execute(dsn, "UPDATE orga_knowledge.items SET kind = 'rumour'")
        with pytest.raises(
            KnowledgeError, match=rf"damaged \(the item '{one.id}' has values .* forget --id ID"
        ) as caught:
            await store.get(one.id)
        assert (caught.value.kind, caught.value.retryable) == ("Corrupt", False)
        assert await store.forget(Erasure(ids=(one.id,))) == {"rumour": 1}
        assert await store.get(one.id) is None


async def test_fifty_concurrent_writers_of_the_same_facts_store_each_once() -> None:
    dsn = kept_postgres().database()
    async with stores(dsn, 2) as (one, other):
        facts = [a_fact(f"service {n}", "listens on", str(n)) for n in range(10)]

        async def write(run: int) -> list[str]:
            own = a_fact(f"run {run}", "was", "here")
            store = (one, other)[run % 2]
            return [each.change for each in await store.store([*facts[run % 10 :], *facts[: run % 10], own])]

        changes = [change for run in await asyncio.gather(*map(write, range(50))) for change in run]
        assert changes.count("added") == 10 + 50
        assert changes.count("unchanged") == 49 * 10
        assert (await one.facts()).counts == {"fact": 60}


async def test_a_restarted_server_is_found_again() -> None:
    with running_postgres() as server:
        async with stores(server.database()) as (store,):
            await store.store([a_fact("the server", "was", "there")])
            await asyncio.gather(*(store.recall(query_for("server")) for _ in range(5)))  # several connections
            server.stop()
            with pytest.raises(KnowledgeError, match=r"cannot be reached: .*start its server, or correct") as caught:
                await store.recall(query_for("server"))
            assert (caught.value.kind, caught.value.retryable) == ("Unreachable", True)
            server.start()
            assert texts(await store.recall(query_for("server"))) == ["the server was there"]
            await store.store([a_fact("the server", "is", "back")])


async def test_a_server_that_stops_during_a_write_has_stored_all_or_nothing() -> None:
    with running_postgres() as server:
        async with stores(server.database()) as (store,):
            await store.store([a_text("before")])
            writing = asyncio.create_task(store.store([a_text(f"text {n}") for n in range(3_000)]))
            await asyncio.sleep(0.3)
            server.stop()
            with pytest.raises(KnowledgeError) as caught:
                await writing
            assert (caught.value.kind, caught.value.retryable) == ("Unreachable", True)
            server.start()
            assert (await store.facts()).counts in ({"document": 1}, {"document": 3_001})


async def test_a_wrong_password_is_reported_without_showing_it() -> None:
    dsn = kept_postgres().dsn().replace(PASSWORD, "planted-wrong-one")
    async with stores(dsn) as (store,):
        with pytest.raises(
            KnowledgeError, match=r"password authentication failed.*correct the address in DSN"
        ) as caught:
            await store.recall(query_for("x"))
    assert "planted" not in f"{caught.value!r}{caught.value.__cause__!r}"


async def test_an_unreachable_server_is_reported_with_its_address() -> None:
    async with stores(f"postgresql://u:{PASSWORD}@127.0.0.1:9/d") as (store,):
        with pytest.raises(KnowledgeError, match=r"postgresql://127.0.0.1:9/d cannot be reached: ") as caught:
            await store.store([a_text("x")])
    assert PASSWORD not in str(caught.value)


async def test_a_database_of_a_newer_version_is_not_touched() -> None:
    dsn = kept_postgres().database()
    async with stores(dsn) as (store,):
        await store.store([a_text("x")])
    execute(dsn, "UPDATE orga_knowledge.version SET version = 99")
    async with stores(dsn) as (store,):
        with pytest.raises(KnowledgeError, match=f"has schema 99, and this version of orga knows {VERSION}") as caught:
            await store.store([a_text("y")])
    assert caught.value.kind == "NewerSchema"


async def test_a_user_without_the_right_to_create_the_extension_gets_the_command_to_run() -> None:
    server = kept_postgres()
    name = server.database().rpartition("/")[2]
    execute(server.dsn(), f"CREATE ROLE {name} LOGIN PASSWORD '{PASSWORD}'")
    dsn = server.dsn(name).replace("//orga:", f"//{name}:")
    async with stores(dsn) as (store,):
        with pytest.raises(KnowledgeError, match=r"lacks pgvector .*let an administrator run there: CREATE EXTENSION"):
            await store.store([a_text("x")])


async def test_a_write_to_a_read_only_replica_is_rejected() -> None:
    dsn = kept_postgres().database()
    async with stores(dsn) as (store,):
        await store.store([a_text("x")])
    execute(dsn, f"ALTER DATABASE {dsn.rpartition('/')[2]} SET default_transaction_read_only = on")
    async with stores(dsn) as (store,):
        assert texts(await store.recall(query_for("x"))) == ["x"]
        with pytest.raises(KnowledgeError, match="cannot be written, as a replica cannot") as caught:
            await store.store([a_text("y")])
    assert caught.value.kind == "ReadOnly"


async def test_a_cancelled_call_leaves_its_connection_usable_or_closed() -> None:
    async with stores(kept_postgres().database()) as (store,):
        await store.store([a_text("x")])
        for _ in range(12):
            call = asyncio.create_task(store.recall(query_for("x")))
            await asyncio.sleep(0.01)
            call.cancel()
            await asyncio.gather(call, return_exceptions=True)
        assert texts(await store.recall(query_for("x"))) == ["x"]


async def test_a_connection_is_closed_if_the_call_is_cancelled_while_it_is_checked() -> None:
    connections = PostgresConnections(parse_address(kept_postgres().database(), "DSN"))
    async with connections.without_transaction() as idle:
        pass
    call = asyncio.create_task(connections.without_transaction().__aenter__())
    while idle.info.transaction_status is not TransactionStatus.ACTIVE and not call.done():
        await asyncio.sleep(0)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    assert idle.closed
