"""(m) The quality of recall on a public question set: by words, by vectors and by both."""

import json
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from bench.figures import Figure
from bench.sides.rig import Rig
from orga.activities.adapters.knowledge.embedders import HashingEmbedder
from orga.activities.adapters.knowledge.sqlite.sqlite_store import SqliteStore
from orga.activities.knowledge.ports import Embedder
from orga.activities.knowledge.vectors import cosine
from orga.workflows.types.knowledge import KnowledgeItem, Recall

QUESTIONS = Path(__file__).parent / "questions" / "squad.jsonl"
DEPTH = 100
"""Number of results in which an answer is searched."""

Finder = Callable[[str], Awaitable[Sequence[str]]]


@dataclass(frozen=True)
class Quality:
    """The quality of one way to recall."""

    recall_at_5: float
    mean_reciprocal_rank: float


class NoVectors(HashingEmbedder):
    """Finds no similarity, so that only words rank."""

    async def embed(self, texts: Sequence[str]) -> list[list[float]]:
        return [[0.0] * self.dimensions for _ in texts]


def questions() -> tuple[list[str], list[tuple[str, str]]]:
    """Return the passages, and each question with the passage that answers it."""
    rows = [json.loads(line) for line in QUESTIONS.read_text().splitlines()]
    return [row["passage"] for row in rows], [(text, row["passage"]) for row in rows for text in row["questions"]]


async def measure(_: Rig) -> list[Figure]:
    """Return the figures. The ratio compares one way with both together, and its limit is 1."""
    words, vectors, hybrid = await by_store(NoVectors()), await by_vectors(), await by_store(HashingEmbedder())
    figures: list[Figure] = []
    for what, of in (("recall@5", _recall), ("mean reciprocal rank", _rank)):
        for name, quality in (("words", words), ("vectors", vectors)):
            ratio = of(quality) / of(hybrid)
            figures.append(Figure("m", f"{what}: {name} compared with both", "%", of(quality), of(hybrid), ratio, 1.0))
    return figures


async def by_store(embedder: Embedder) -> Quality:
    """Return the quality of the embedded store with this embedder."""
    passages, _ = questions()
    with TemporaryDirectory() as folder:
        store = SqliteStore(Path(folder) / "knowledge.db", embedder)
        await store.store([KnowledgeItem(kind="document", text=passage) for passage in passages])

        async def find(question: str) -> Sequence[str]:
            found = await store.recall(Recall(text=question, limit=DEPTH, threshold=0.0))
            return [each.item.text for each in found]

        quality = await _quality(find)
        await store.close()
        return quality


async def by_vectors() -> Quality:
    """Return the quality of vectors alone, comparing all of them."""
    passages, _ = questions()
    embedder = HashingEmbedder()
    vectors = await embedder.embed(passages)

    async def find(question: str) -> Sequence[str]:
        [query] = await embedder.embed([question])
        order = sorted(zip(passages, vectors, strict=True), key=lambda pair: -cosine(query, pair[1]))
        return [passage for passage, _ in order[:DEPTH]]

    return await _quality(find)


async def _quality(find: Finder) -> Quality:
    _, asked = questions()
    ranks: list[int | None] = []
    for question, answer in asked:
        found = list(await find(question))
        ranks.append(found.index(answer) if answer in found else None)
    hits = sum(rank is not None and rank < 5 for rank in ranks)
    return Quality(hits / len(ranks), sum(1 / (rank + 1) for rank in ranks if rank is not None) / len(ranks))


def _recall(quality: Quality) -> float:
    return 100 * quality.recall_at_5


def _rank(quality: Quality) -> float:
    return 100 * quality.mean_reciprocal_rank
