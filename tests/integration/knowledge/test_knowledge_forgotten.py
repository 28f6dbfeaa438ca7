"""Expired and erased items: every store forgets, and keeps, the same ones."""

from datetime import timedelta
from time import monotonic

import pytest

from orga.activities.knowledge.ports import KnowledgeError, KnowledgeStore
from orga.workflows.types.knowledge import Erasure, Provenance
from tests.support.knowledge.items import T0, Clock, a_fact, a_text, owned, query_for, texts
from tests.support.knowledge.stores import all_items, clock, opens, store

__all__ = ["clock", "opens", "store"]


@pytest.mark.parametrize("text", ["lorries", ""], ids=["by words", "without words"])
async def test_an_expired_item_is_not_recalled(store: KnowledgeStore, clock: Clock, text: str) -> None:
    await store.store([a_text("lorries", expires_at=T0 + timedelta(seconds=10))])
    clock.advance(9.999)
    assert len(await store.recall(query_for(text))) == 1
    clock.advance(0.001)
    assert await store.recall(query_for(text)) == []
    assert (await store.facts()).expired == 1


async def test_expired_items_are_erased_on_request(store: KnowledgeStore, clock: Clock) -> None:
    """An older fact that an erased one contradicted is valid again. Items that expire later, or never, stay."""
    [old] = await store.store([a_fact("the site", "is", "up")])
    clock.advance(1)
    await store.store(
        [
            a_fact("the site", "is", "down", expires_at=T0 + timedelta(hours=1)),
            a_text("trams", expires_at=T0 + timedelta(hours=1), **owned("tenant", "acme")),
            a_text("buses", expires_at=T0 + timedelta(hours=2)),
            a_text("lorries"),
        ]
    )
    clock.advance(3600)
    assert (await store.facts()).expired == 2
    assert await store.forget(Erasure(expired_by=clock(), tenant="acme")) == {"document": 1}
    assert await store.forget(Erasure(expired_by=clock())) == {"fact": 1}
    assert (await store.facts()).expired == 0
    assert sorted(item.text for item in await all_items(store)) == ["buses", "lorries", "the site is up"]
    assert (kept := await store.get(old.id)) is not None
    assert kept.contradicted_by == ""


async def test_only_the_named_items_are_erased(store: KnowledgeStore) -> None:
    mine = a_fact("x", "is", "1", **owned("user", "acme", "anna"), provenance=Provenance(workflow_id="run-1"))
    items = [
        mine,
        a_fact("x", "is", "1", **owned("user", "acme", "bert"), provenance=Provenance(workflow_id="run-2")),
        a_text("y", **owned("tenant", "acme"), provenance=Provenance(workflow_id="run-1", source="docs/a.md")),
        a_text("z", **owned("tenant", "")),
        a_text("w", **owned("global")),
    ]
    await store.store(items)
    assert await store.forget(Erasure(user="anna", workflow_id="run-2")) == {}
    assert await store.forget(Erasure(user="anna", workflow_id="run-1")) == {"fact": 1}
    assert await store.forget(Erasure(subject="x")) == {"fact": 1}
    assert await store.forget(Erasure(source="docs/a.md")) == {"document": 1}
    assert await store.forget(Erasure(tenant="")) == {"document": 1}
    assert [item.text for item in await all_items(store)] == ["w"]
    with pytest.raises(KnowledgeError, match="name what to forget"):
        await store.forget(Erasure())
    await store.store([mine])
    assert texts(await store.recall(query_for("x", reader=mine.owner))) == ["x is 1"]


async def test_remaining_items_are_found_after_a_purge(store: KnowledgeStore) -> None:
    await store.store([a_text("the crane is yellow"), a_text("the crane is red")])
    await store.purge()
    assert await store.forget(Erasure(ids=((await store.recall(query_for("yellow")))[0].item.id,))) == {"document": 1}
    await store.purge()
    assert texts(await store.recall(query_for("crane"))) == ["the crane is red"]


async def test_many_facts_that_contradict_others_are_forgotten_at_once(store: KnowledgeStore, clock: Clock) -> None:
    for source in ("old", "new"):
        provenance = Provenance(source=source)
        await store.store([a_fact(f"port {n}", "is", source, provenance=provenance) for n in range(1_000)])
        clock.advance(1)
    began = monotonic()
    assert await store.forget(Erasure(source="new")) == {"fact": 1_000}
    assert monotonic() - began < 2, "it must not compare each fact with each claim while other writers wait"
    assert (await store.facts()).contradicted == 0
