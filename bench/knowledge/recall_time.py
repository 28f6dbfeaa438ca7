"""(n) The time to recall among many items, and to import them."""

import gc
from collections.abc import Iterator
from pathlib import Path
from random import Random
from statistics import median
from tempfile import TemporaryDirectory
from time import perf_counter, process_time

from bench.figures import Figure
from bench.knowledge.recall_quality import questions
from bench.sides.rig import Rig
from orga.activities.adapters.knowledge.embedders import HashingEmbedder
from orga.activities.adapters.knowledge.sqlite.sqlite_store import SqliteStore
from orga.activities.knowledge.exchange import import_items
from orga.activities.knowledge.recall import RECALL_TIMEOUT_S
from orga.workflows.types.knowledge import KnowledgeItem, Recall

MAX_MS = 50.0
"""Limit of the processor time of the whole process, which other work on the machine hardly changes."""
MAX_FIRST_MS = RECALL_TIMEOUT_S * 1_000
"""Limit of the first recall in a process, and of the first after items were forgotten, which read all codes. A slower
recall would time out, and the run would continue without knowledge."""
MAX_GROWTH = 1.25
"""Limit of the memory after the last tenth of the import, relative to that after the first tenth."""
WORDS = 40


async def measure(_: Rig, items: int) -> list[Figure]:
    """Return the figures, with passages of 40 consecutive words from the question set, and its questions."""
    with TemporaryDirectory() as folder:
        store = SqliteStore(Path(folder) / "knowledge.db", HashingEmbedder())
        sizes: list[float] = []

        def progress(done: int, total: int) -> None:
            if done * 10 // total > len(sizes):
                gc.collect()
                sizes.append(_resident_mb())

        begun = process_time()
        await import_items(store, _passages(items), progress, total=items)
        each_ms = (process_time() - begun) * 1_000 / items
        begun = process_time()
        await store.recall(Recall(text="the first reads the codes into memory"))
        first_ms = (process_time() - begun) * 1_000
        spent, waited = await _recalled(store)
        await store.close()
    return [
        Figure("n", f"import of {items:,} items, each", "ms", each_ms),
        Figure(
            "n",
            "its memory, at the end / after the first tenth",
            "MB",
            sizes[-1],
            sizes[0],
            sizes[-1] / sizes[0],
            MAX_GROWTH,
        ),
        Figure("n", f"recall among {items:,}, median of its processor time", "ms", median(spent), limit=MAX_MS),
        Figure("n", "the same by the clock", "ms", median(waited)),
        Figure("n", "the first, its processor time", "ms", first_ms, limit=MAX_FIRST_MS),
    ]


async def _recalled(store: SqliteStore) -> tuple[list[float], list[float]]:
    spent: list[float] = []
    waited: list[float] = []
    for question, _ in questions()[1][::2]:
        begun, begun_at = process_time(), perf_counter()
        await store.recall(Recall(text=question))
        spent.append((process_time() - begun) * 1_000)
        waited.append((perf_counter() - begun_at) * 1_000)
    return spent, waited


def _passages(count: int) -> Iterator[KnowledgeItem]:
    words = " ".join(questions()[0]).split()
    draw = Random(7)
    for number in range(count):
        start = draw.randrange(len(words) - WORDS)
        yield KnowledgeItem(kind="document", text=" ".join(words[start : start + WORDS]), key=str(number))


def _resident_mb() -> float:
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmRSS"))
    return int(line.split()[1]) / 1_024
