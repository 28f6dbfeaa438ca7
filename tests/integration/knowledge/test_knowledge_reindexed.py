"""Reindexing in every store, after the embedder was changed."""

from collections.abc import Sequence

import pytest

from orga.activities.adapters.knowledge.embedders import HashingEmbedder
from tests.support.knowledge.items import Clock, a_text, query_for
from tests.support.knowledge.stores import OpenStore, clock, opens, store

__all__ = ["clock", "opens", "store"]


class Renamed(HashingEmbedder):
    """An embedder that a store takes for another one. It counts the texts it was given."""

    def __init__(self, name: str = "another") -> None:
        self._name = name
        self.texts = 0

    @property
    def name(self) -> str:
        return self._name

    async def embed(self, texts: Sequence[str]) -> list[list[float]]:
        self.texts += len(texts)
        return await super().embed(texts)


async def test_vectors_of_another_embedder_are_ignored_until_reindexed(opens: OpenStore, clock: Clock) -> None:
    await opens(now=clock).store([a_text(f"restarting scheduler number {n}") for n in range(300)])
    changed = opens(now=clock, embedder=Renamed())
    assert (await changed.facts()).embedder == HashingEmbedder().name
    [by_words] = await changed.recall(query_for("scheduler 299", limit=1))
    assert by_words.item.text == "restarting scheduler number 299"
    reported: list[tuple[int, int]] = []
    assert await changed.reindex(lambda done, total: reported.append((done, total))) == 300
    assert reported[0] == (0, 300)
    assert reported[-1] == (300, 300)
    assert (await changed.facts()).embedder == "another"
    assert await changed.reindex(lambda done, total: None) == 0


async def test_reindexing_continues_after_it_was_stopped(opens: OpenStore, clock: Clock) -> None:
    await opens(now=clock).store([a_text(f"text {n}") for n in range(400)])
    embedder = Renamed()

    def stop(done: int, total: int) -> None:
        if done:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        await opens(now=clock, embedder=embedder).reindex(stop)
    before = embedder.texts
    assert 0 < before < 400
    assert await opens(now=clock, embedder=embedder).reindex(lambda done, total: None) == 400 - before
    assert embedder.texts == 400
