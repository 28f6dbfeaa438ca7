"""The file of the embedded store: private, migrated, checked, and with clear errors."""

import asyncio
import os
import sqlite3
import stat
from collections.abc import AsyncGenerator, Callable
from contextlib import closing
from pathlib import Path

import pytest

from orga.activities.adapters.knowledge.embedders import HashingEmbedder
from orga.activities.adapters.knowledge.sqlite import schema
from orga.activities.adapters.knowledge.sqlite import sqlite_store as connections
from orga.activities.adapters.knowledge.sqlite.schema import knowledge_error
from orga.activities.adapters.knowledge.sqlite.sqlite_store import (
    SqliteStore,
    SqliteTransaction,
    VectorCodes,
    run_without_waiting,
)
from orga.activities.adapters.knowledge.store import KnowledgeSearch
from orga.activities.knowledge.ports import KnowledgeError
from orga.workflows.types.knowledge import Erasure
from tests.support.knowledge.items import Clock, a_fact, a_text, owned, query_for, texts

Opens = Callable[[], SqliteStore]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state" / "knowledge.db"


@pytest.fixture
async def opens(path: Path) -> AsyncGenerator[Opens]:
    opened: list[SqliteStore] = []

    def open_store() -> SqliteStore:
        opened.append(SqliteStore(path, HashingEmbedder(), now=Clock()))
        return opened[-1]

    yield open_store
    for store in opened:
        await store.close()


async def a_closed_store(path: Path, count: int = 300) -> None:
    store = SqliteStore(path, HashingEmbedder(), now=Clock())
    await store.store([a_text(f"lorry number {n}") for n in range(count)])
    await store.close()


async def test_only_the_owner_can_read_the_file(opens: Opens, path: Path) -> None:
    before = os.umask(0)
    try:
        await opens().store([a_text("a secret")])
    finally:
        os.umask(before)
    modes = {file.name: stat.S_IMODE(file.stat().st_mode) for file in path.parent.iterdir()}
    assert modes == {f"knowledge.db{end}": 0o600 for end in ("", "-wal", "-shm")}
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


async def test_the_reported_facts_match_the_file(opens: Opens, path: Path) -> None:
    store = opens()
    await store.store([a_text("one"), a_fact("a", "is", "b")])
    facts = await store.facts()
    assert (facts.backend, facts.place, facts.schema_version) == ("sqlite", str(path), schema.VERSION)
    assert (facts.counts, facts.embedder) == ({"document": 1, "fact": 1}, HashingEmbedder().name)
    assert facts.size_bytes > 10_000


async def test_a_newer_schema_is_refused(opens: Opens, path: Path) -> None:
    await a_closed_store(path, 1)
    with sqlite3.connect(path) as connection:
        connection.execute(f"PRAGMA user_version = {schema.VERSION + 1}")
    connection.close()
    with pytest.raises(KnowledgeError, match="a newer one wrote it; upgrade orga") as caught:
        await opens().recall(query_for("lorry"))
    assert caught.value.kind == "NewerSchema"


async def test_an_older_file_is_migrated_to_this_version(
    opens: Opens, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await a_closed_store(path, 1)
    more = ("ALTER TABLE items ADD COLUMN later TEXT NOT NULL DEFAULT 'new'", "CREATE TABLE more (a)")
    monkeypatch.setattr(schema, "MIGRATIONS", (*schema.MIGRATIONS, more))
    monkeypatch.setattr(schema, "VERSION", schema.VERSION + 1)
    assert texts(await opens().recall(query_for("lorry"))) == ["lorry number 0"]
    with sqlite3.connect(path) as connection:
        assert connection.execute("SELECT later FROM items").fetchall() == [("new",)]
        assert connection.execute("PRAGMA user_version").fetchone() == (schema.VERSION,)
    connection.close()


@pytest.mark.parametrize("version", range(1, schema.VERSION))
async def test_a_file_of_each_version_is_migrated(
    opens: Opens, path: Path, monkeypatch: pytest.MonkeyPatch, version: int
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(schema, "MIGRATIONS", schema.MIGRATIONS[:version])
        patch.setattr(schema, "VERSION", version)
        await a_closed_store(path, 1)
    assert version_of(path) == version
    store = opens()
    assert texts(await store.recall(query_for("lorry"))) == ["lorry number 0"]
    assert (await store.facts()).counts == {"document": 1}
    assert version_of(path) == schema.VERSION


def version_of(path: Path) -> int:
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute("PRAGMA user_version").fetchone()[0]


@pytest.mark.parametrize(
    ("place", "index"),
    [
        pytest.param({"directory": ""}, "items_by_folder (directory=? AND place=? AND kind=?)", id="the root"),
        pytest.param({"language": "python"}, "items_by_language (language=? AND place=?)", id="a language"),
    ],
)
async def test_conventions_are_found_without_a_full_scan(
    opens: Opens, path: Path, place: dict[str, str], index: str
) -> None:
    """Items without a directory are also at the root, so a scan would grow with the number of items."""
    await opens().store([a_text("one")])
    asked: list[str] = []
    connection = sqlite3.connect(path)
    connection.set_trace_callback(asked.append)
    looked_for = query_for(kinds=("convention",), **place)
    search = KnowledgeSearch(SqliteTransaction(connection, VectorCodes("")), looked_for, now=0)
    run_without_waiting(search.candidates(None))
    connection.set_trace_callback(None)
    plan = connection.execute(f"EXPLAIN QUERY PLAN {asked[0]}").fetchall()
    connection.close()
    assert index in plan[0][-1]


async def test_a_migration_that_fails_changes_nothing(
    opens: Opens, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await a_closed_store(path, 1)
    with monkeypatch.context() as patch:
        patch.setattr(schema, "MIGRATIONS", (*schema.MIGRATIONS, ("CREATE TABLE more (a)", "CREATE TABLE items (a)")))
        patch.setattr(schema, "VERSION", schema.VERSION + 1)
        with pytest.raises(KnowledgeError, match="already exists"):
            await opens().recall(query_for("lorry"))
    assert texts(await opens().recall(query_for("lorry"))) == ["lorry number 0"]
    with sqlite3.connect(path) as connection:
        assert connection.execute("SELECT name FROM sqlite_master WHERE name = 'more'").fetchall() == []
    connection.close()


async def test_a_sqlite_file_of_another_program_is_not_touched(opens: Opens, path: Path) -> None:
    path.parent.mkdir()
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE bookmarks (address)")
    connection.close()
    before = path.read_bytes()
    with pytest.raises(KnowledgeError, match="SQLite file of something else"):
        await opens().store([a_text("one")])
    assert path.read_bytes() == before


@pytest.mark.parametrize(
    "content", [b"this is no database at all, whatever its name says" * 100, b"SQLite format 3\0" * 9]
)
async def test_a_file_that_is_not_a_database_is_rejected(opens: Opens, path: Path, content: bytes) -> None:
    path.parent.mkdir()
    path.write_bytes(content)
    with pytest.raises(KnowledgeError, match=r"damaged .* orga knowledge import FILE") as caught:
        await opens().recall(query_for("lorry"))
    assert (caught.value.kind, caught.value.retryable) == ("Corrupt", False)
    assert path.read_bytes() == content


async def test_a_damaged_file_is_reported_with_the_remedy(opens: Opens, path: Path) -> None:
    await a_closed_store(path)
    data = bytearray(path.read_bytes())
    for start in range(2 * 4096, len(data), 2 * 4096):
        data[start : start + 4096] = b"\xaa" * len(data[start : start + 4096])
    path.write_bytes(data)
    with pytest.raises(KnowledgeError, match=r"damaged .* move .* away, then orga knowledge import FILE") as caught:
        await opens().facts()
    assert caught.value.kind == "Corrupt"


async def test_everything_outside_a_damaged_page_can_be_exported(opens: Opens, path: Path) -> None:
    """Items are listed by id, and that soon meets the damage. The export has to continue around it."""
    await a_closed_store(path, 900)
    data = bytearray(path.read_bytes())
    start = data.find(b"lorry number 450") // 4096 * 4096
    data[start : start + 4096] = b"\xff" * 4096
    path.write_bytes(data)
    read: list[str] = []

    async def read_all() -> None:
        async for item in opens().items(kinds=["document"]):
            read.append(item.text)

    with pytest.raises(KnowledgeError, match=r"\(\d+ of its items cannot be read\).* The way back") as caught:
        await read_all()
    lost = int(str(caught.value).partition("(")[2].partition(" ")[0])
    assert caught.value.kind == "Corrupt"
    assert len(set(read)) == len(read) == 900 - lost
    assert 0 < lost < 50
    assert "lorry number 450" not in read


@pytest.mark.parametrize(
    "values",
    [
        pytest.param("object = CAST(X'fffe' AS TEXT)", id="no UTF-8"),
        pytest.param("taint = 'no JSON'", id="no JSON"),
        pytest.param("taint = '5'", id="no list"),
        pytest.param("kind = 'rumour'", id="no kind"),
        pytest.param("stored_at = 'never'", id="no number"),
        pytest.param("stored_at = 9000000000000000000", id="no time"),
    ],
)
async def test_damaged_values_are_reported_counted_and_left_out_of_an_export(
    opens: Opens, path: Path, values: str
) -> None:
    """SQLite's own check does not examine values."""
    await a_closed_store(path, 300)
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(f"UPDATE items SET {values} WHERE text = 'lorry number 150'")
        [(item_id,)] = connection.execute("SELECT id FROM items WHERE text = 'lorry number 150'").fetchall()
    store, read = opens(), list[str]()

    async def read_all() -> None:
        async for item in store.items():
            read.append(item.text)

    reported = r"damaged \(.*\)\. The way back: .* orga knowledge import FILE"
    counted = r"damaged \(1 of its items cannot be read\)\. The way back"
    for asked, message in ((store.get(item_id), reported), (store.facts(), counted), (read_all(), counted)):
        with pytest.raises(KnowledgeError, match=message) as caught:
            await asked
        assert (caught.value.kind, caught.value.retryable) == ("Corrupt", False)
    assert sorted(read) == sorted(f"lorry number {n}" for n in range(300) if n != 150)


@pytest.mark.parametrize(
    "change",
    [
        pytest.param("UPDATE items SET source = CAST(X'fffe' AS TEXT)", id="no UTF-8"),
        pytest.param("UPDATE vectors SET vector = X'00'", id="no vector"),
    ],
)
async def test_a_recall_of_damaged_values_reports_the_remedy(opens: Opens, path: Path, change: str) -> None:
    await a_closed_store(path, 1)
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(change)
    with pytest.raises(KnowledgeError, match=r"damaged \(.*\)\. The way back") as caught:
        await opens().recall(query_for("lorry"))
    assert caught.value.kind == "Corrupt"


async def test_reindex_repairs_a_damaged_text_index(opens: Opens, path: Path) -> None:
    await a_closed_store(path, 20)
    with sqlite3.connect(path) as connection:
        connection.execute("DELETE FROM words_data WHERE id > 10")
    connection.close()
    store = opens()
    with pytest.raises(KnowledgeError, match="run: orga knowledge reindex") as caught:
        await store.recall(query_for("lorry"))
    assert caught.value.kind == "Corrupt"
    await store.reindex(lambda done, total: None)
    assert len(await store.recall(query_for("lorry"))) == 5


async def test_a_folder_that_cannot_be_created_is_reported(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    store = SqliteStore(tmp_path / "file" / "knowledge.db", HashingEmbedder())
    with pytest.raises(KnowledgeError, match=r"cannot be opened: .*set \[knowledge\] path"):
        await store.recall(query_for("x"))
    await store.close()


async def test_a_full_disk_is_reported_and_the_call_stores_nothing(opens: Opens, path: Path) -> None:
    await a_closed_store(path, 10)
    store = opens()
    await store.store([a_text("the writer is open")])
    connection = await asyncio.wrap_future(store._writer.submit(store._connections.current))
    (pages,) = await asyncio.wrap_future(
        store._writer.submit(lambda: connection.execute("PRAGMA page_count").fetchone())
    )
    await asyncio.wrap_future(store._writer.submit(lambda: connection.execute(f"PRAGMA max_page_count = {pages + 3}")))
    with pytest.raises(KnowledgeError, match="no room left and nothing was stored") as caught:
        await store.store([a_text(f"a rather long text {n} " * 50) for n in range(100)])
    assert (caught.value.kind, caught.value.retryable) == ("DiskFull", True)
    assert len([item async for item in store.items()]) == 11
    await asyncio.wrap_future(store._writer.submit(lambda: connection.execute("PRAGMA max_page_count = 1000000")))
    assert [each.change for each in await store.store([a_text("room again")])] == ["added"]


async def test_a_read_only_file_is_reported_on_write_and_can_be_read(opens: Opens, path: Path) -> None:
    store = opens()
    await store.store([a_text("lorries")])
    connection = await asyncio.wrap_future(store._writer.submit(store._connections.current))
    await asyncio.wrap_future(store._writer.submit(lambda: connection.execute("PRAGMA query_only = ON")))
    with pytest.raises(KnowledgeError, match="cannot be written; make it and its folder writable") as caught:
        await store.store([a_text("bicycles")])
    assert caught.value.kind == "ReadOnly"
    assert texts(await store.recall(query_for("lorry"))) == ["lorries"]


async def test_a_writer_that_waits_too_long_may_retry(
    opens: Opens, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("orga.activities.adapters.knowledge.sqlite.sqlite_store.WAIT_S", 0.05)
    store = opens()
    await store.store([a_text("lorries")])
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(KnowledgeError, match="held by another process") as caught:
        await store.store([a_text("bicycles")])
    assert (caught.value.kind, caught.value.retryable) == ("Busy", True)
    assert texts(await store.recall(query_for("lorry"))) == ["lorries"], "readers must not wait"
    other.execute("COMMIT")
    other.close()
    assert [each.change for each in await store.store([a_text("bicycles")])] == ["added"]


async def test_the_event_loop_continues_while_a_writer_waits(opens: Opens, path: Path) -> None:
    store = opens()
    await store.store([a_text("lorries")])
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    waiting = asyncio.create_task(store.store([a_text("bicycles")]))
    for _ in range(20):
        await asyncio.sleep(0.01)
    assert not waiting.done()
    other.execute("COMMIT")
    other.close()
    assert [each.change for each in await waiting] == ["added"]


async def test_a_closed_store_leaves_one_file(path: Path) -> None:
    await a_closed_store(path, 1)
    assert [file.name for file in path.parent.iterdir()] == ["knowledge.db"]


async def test_forgotten_text_is_removed_from_the_files(opens: Opens, path: Path) -> None:
    """Another process has the store open, so the last one to close does not remove the write-ahead log."""
    other, store = opens(), opens()
    await other.store([a_text(f"lorry number {n}") for n in range(300)])
    await store.store([a_fact("zanzibar", "is kept in", "vault quuxword", **owned("user", user="ada"))])
    await store.store([a_text(f"crane number {n}") for n in range(300)])
    await store.forget(Erasure(user="ada"))
    await store.purge()
    files = [file.read_bytes().lower() for file in path.parent.iterdir()]
    assert not [word for word in (b"zanzibar", b"quuxw", b"quux") if any(word in file for file in files)]
    assert len(await other.recall(query_for("lorry"))) == len(await other.recall(query_for("crane"))) == 5


async def test_a_purge_reports_forgotten_text_that_another_process_keeps_in_the_log(
    opens: Opens, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "WAIT_S", 0.1)
    store = opens()
    await store.store([a_fact("zanzibar", "is kept in", "vault quuxword", **owned("user", user="ada"))])
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN")
    other.execute("SELECT * FROM items").fetchall()
    await store.forget(Erasure(user="ada"))
    with pytest.raises(KnowledgeError, match=r"may remain in .*knowledge\.db-wal: another process reads") as refused:
        await store.purge()
    assert refused.value.retryable
    other.close()
    await store.purge()
    assert not [file for file in path.parent.iterdir() if b"zanzibar" in file.read_bytes().lower()]


async def test_numbers_of_forgotten_items_are_not_reused(opens: Opens) -> None:
    """Another process may still hold the number of a forgotten item in memory."""
    one, other = opens(), opens()
    [first] = await one.store([a_text("lorries")])
    assert texts(await other.recall(query_for("lorry"))) == ["lorries"]
    await one.forget(Erasure(ids=(first.id,)))
    await one.store([a_text("bicycles")])
    assert texts(await other.recall(query_for("lorry", threshold=0))) == ["bicycles"]
    assert texts(await other.recall(query_for("lorry"))) == []


def test_an_unknown_failure_names_the_store(path: Path) -> None:
    error = knowledge_error(sqlite3.OperationalError("disk I/O error"), path)
    assert (str(error), error.retryable) == (
        f"the knowledge store {path} failed: disk I/O error; look at its disk",
        True,
    )


async def test_the_cost_of_a_claim_does_not_grow_with_its_facts(opens: Opens) -> None:
    """Each call compares only the newest facts. SQLite itself counts the steps of the work."""
    store = opens()
    steps = 0

    def count() -> int:
        nonlocal steps
        steps += 1
        return 0

    await store.store([a_fact("x", "has", str(number)) for number in range(60)])
    connection = await asyncio.wrap_future(store._writer.submit(store._connections.current))
    connection.set_progress_handler(count, 100)
    spent: list[int] = []
    for start in (100, 200, 300, 400):
        steps = 0
        await store.store([a_fact("x", "has", str(number)) for number in range(start, start + 100)])
        spent.append(steps)
    assert spent[-1] < 1.5 * spent[0]
    kept = [item async for item in store.items()]
    assert [item.object for item in kept if not item.contradicted_by] == ["499"]
