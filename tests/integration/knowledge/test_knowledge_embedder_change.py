"""A store whose vectors were made by another embedder: it warns once with the remedy, and reindexing repairs it."""

import logging

import pytest

from orga.activities.adapters.knowledge.embedders import WordLlamaEmbedder
from tests.support.knowledge.items import Clock, a_text, query_for, texts
from tests.support.knowledge.stores import OpenStore, opens

__all__ = ["opens"]


async def test_a_change_of_embedder_is_reported_once_and_repaired_by_reindex(
    opens: OpenStore, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "orga.activities.adapters.knowledge")
    clock = Clock()
    before = opens(now=clock)
    await before.store([a_text("reboot the machine"), a_text("a cake with cherries")])
    await before.recall(query_for("machine"))
    assert caplog.messages == []

    changed = opens(now=clock, embedder=WordLlamaEmbedder())
    assert await changed.recall(query_for("restart the server")) == []
    assert texts(await changed.recall(query_for("machine"))) == ["reboot the machine"]
    assert texts(await changed.recall(query_for("machine"))) == ["reboot the machine"]
    [reported] = caplog.messages
    assert "1 of 1 found items have no vectors of the embedder wordllama" in reported
    assert reported.endswith("make vectors with: orga knowledge reindex")

    assert await changed.reindex(lambda done, total: None) == 2
    assert texts(await changed.recall(query_for("restart the server"))) == ["reboot the machine"]
    fresh = opens(now=clock, embedder=WordLlamaEmbedder())
    await fresh.recall(query_for("machine"))
    assert len(caplog.messages) == 1
