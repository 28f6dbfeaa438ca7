"""A process that writes to a knowledge store: `python -m tests.support.knowledge.writer PATH ROLE`."""

import asyncio
import sys
from collections.abc import Iterator
from pathlib import Path

from orga.activities.adapters.knowledge.embedders import HashingEmbedder
from orga.activities.adapters.knowledge.sqlite.sqlite_store import SqliteStore
from orga.activities.knowledge.exchange import import_items
from orga.workflows.types.knowledge import KnowledgeItem, Recall
from tests.support.knowledge.items import a_fact, a_text

RUNS = 25
"""Parallel writers in one process."""
FACTS = 20


def facts() -> list[KnowledgeItem]:
    """Return facts that are the same in every process: one for each subject, and one that all contradict."""
    return [a_fact(f"service {n}", "listens on", str(n)) for n in range(FACTS)]


def documents(count: int) -> Iterator[KnowledgeItem]:
    """Return documents as an import reads them."""
    return (a_text(f"document number {n} about lorries", key=str(n)) for n in range(count))


async def write_facts(path: Path) -> None:
    """Store them all from many tasks, each starting at another one, and recall in between."""
    store = SqliteStore(path, HashingEmbedder())

    async def run(index: int) -> None:
        mine = (facts() * 2)[index % FACTS :][:FACTS]
        for start in range(0, FACTS, 5):
            part = mine[start : start + 5]
            await store.store([*part, *(a_fact(f"run {index}", "saw", fact.subject) for fact in part)])
            await store.recall(Recall(text=part[0].subject))

    await asyncio.gather(*(run(index) for index in range(RUNS)))
    await store.close()


async def import_documents(path: Path) -> None:
    """Import many documents, and print after each part how many are stored."""
    store = SqliteStore(path, HashingEmbedder())
    await import_items(store, documents(100_000), lambda done, total: print(done, flush=True))


if __name__ == "__main__":
    asyncio.run({"facts": write_facts, "import": import_documents}[sys.argv[2]](Path(sys.argv[1])))
