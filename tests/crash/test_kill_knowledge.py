"""Knowledge survives the processes that write it: no item is lost or duplicated, whatever is killed."""

import asyncio
import sqlite3
import sys
from pathlib import Path

from orga.activities.adapters.knowledge.embedders import HashingEmbedder
from orga.activities.adapters.knowledge.sqlite.sqlite_store import SqliteStore
from orga.activities.knowledge.exchange import import_items
from orga.workflows.types.knowledge import Recall
from tests.support.knowledge.items import texts
from tests.support.knowledge.writer import FACTS, RUNS, documents, facts

MODULE = "tests.support.knowledge.writer"


async def a_process(path: Path, role: str) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", MODULE, str(path), role), stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )


async def test_two_processes_of_many_runs_write_the_same_facts_once(tmp_path: Path) -> None:
    """Both open a file that does not exist yet. Neither gets a lock error, and no fact is lost or duplicated."""
    path = tmp_path / "knowledge.db"
    processes = [await a_process(path, "facts") for _ in range(2)]
    ended = [(await process.communicate(), process.returncode) for process in processes]
    assert [(errors.decode(), code) for (_, errors), code in ended] == [("", 0), ("", 0)]

    store = SqliteStore(path, HashingEmbedder())
    kept = [item async for item in store.items()]
    shared = sorted(item.subject for item in kept if item.predicate == "listens on")
    assert shared == sorted(fact.subject for fact in facts())
    seen = [item for item in kept if item.predicate == "saw"]
    assert len(seen) == RUNS * FACTS
    assert sum(not item.contradicted_by for item in seen) == RUNS, "one of the contradicting facts of each run is valid"
    assert (await store.facts()).counts == {"fact": FACTS + RUNS * FACTS}
    await store.close()


async def test_a_killed_import_is_resumed(tmp_path: Path) -> None:
    path = tmp_path / "knowledge.db"
    process = await a_process(path, "import")
    assert process.stdout is not None
    while int(await process.stdout.readline()) < 1_500:
        pass
    process.kill()
    await process.communicate()

    store = SqliteStore(path, HashingEmbedder())
    before = sum((await store.facts()).counts.values())
    assert before >= 1_500
    imported = await import_items(store, documents(before + 500), lambda done, total: None)
    assert imported == {"unchanged": before, "added": 500, "updated": 0}
    assert sum((await store.facts()).counts.values()) == before + 500
    last = f"document number {before + 499} about lorries"
    assert texts(await store.recall(Recall(text=str(before + 499), limit=1))) == [last]
    await store.close()
    with sqlite3.connect(path) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        connection.execute("INSERT INTO words (words, rank) VALUES ('integrity-check', 1)")
    connection.close()
