"""The contract of every knowledge store, written once over the port."""

import asyncio
from datetime import timedelta

import pytest

from orga.activities.knowledge.ports import KnowledgeError, KnowledgeStore
from orga.workflows.types.knowledge import Erasure, Provenance, StoredItem
from tests.support.knowledge.items import T0, Clock, a_fact, a_text, owned, query_for, texts
from tests.support.knowledge.stores import OpenStore, all_items, clock, opens, store

__all__ = ["clock", "opens", "store"]


async def test_a_stored_item_is_recalled_with_all_its_fields(store: KnowledgeStore) -> None:
    fact = a_fact(
        "the payment service",
        "listens on",
        "port 8443",
        **owned("user", "acme", "anna"),
        key="k1",
        directory="src/api",
        language="python",
        confidence=0.9,
        provenance=Provenance(source="README.md", workflow_id="run-1", iteration=3, model="m", taint=("fetch_url",)),
        expires_at=T0 + timedelta(days=1),
    )
    [stored] = await store.store([fact])
    [found] = await store.recall(query_for("which port does the payment service listen on", reader=fact.owner))
    assert stored.change == "added"
    assert found.item == StoredItem(**fact.model_dump(), id=stored.id, stored_at=T0)
    assert found.score > 0.8
    assert await store.get(stored.id) == found.item


async def test_storing_again_changes_nothing(store: KnowledgeStore, clock: Clock) -> None:
    [first] = await store.store([a_fact("Orga", "runs on", "Temporal")])
    clock.advance(60)
    [again] = await store.store([a_fact("Orga", "runs on", "Temporal", provenance=Provenance(workflow_id="run-2"))])
    assert (again.id, again.change) == (first.id, "unchanged")
    [respelled] = await store.store([a_fact("orga", "runs  on", "temporal")])
    assert (respelled.id, respelled.change) == (first.id, "updated")
    assert [item.text for item in await all_items(store)] == ["orga runs  on temporal"]


async def test_an_item_replaces_the_one_with_its_key(store: KnowledgeStore) -> None:
    await store.store([a_text("yesterday was about lorries", kind="memory", key="last")])
    [stored] = await store.store([a_text("today was about bicycles", kind="memory", key="last")])
    assert stored.change == "updated"
    assert await store.recall(query_for("lorries")) == []
    assert texts(await store.recall(query_for("bicycles"))) == ["today was about bicycles"]


async def test_the_same_key_of_another_owner_is_another_item(store: KnowledgeStore) -> None:
    items = [
        a_text("mine", key="k", **owned("user", "acme", "anna")),
        a_text("yours", key="k", **owned("user", "acme", "bert")),
        a_text("ours", key="k", **owned("tenant", "acme")),
        a_text("theirs", key="k", **owned("tenant", "other")),
        a_text("everybody's", key="k", **owned("global")),
    ]
    assert {stored.change for stored in await store.store(items)} == {"added"}


async def test_a_store_sees_what_another_one_writes_and_forgets(opens: OpenStore, clock: Clock) -> None:
    one, other = opens(now=clock), opens(now=clock)
    assert await other.recall(query_for("lorries", threshold=0)) == []
    [stored] = await one.store([a_text("lorries and bicycles", key="k")])
    assert texts(await other.recall(query_for("lorry bicycle"))) == ["lorries and bicycles"]
    await one.store([a_text("trams", key="k", kind="memory")])
    assert texts(await other.recall(query_for("trams"))) == ["trams"]
    await one.forget(Erasure(ids=(stored.id,)))
    assert await other.recall(query_for("trams", threshold=0)) == []


async def test_items_are_listed_by_id_and_kind_and_source(store: KnowledgeStore) -> None:
    items = [a_text(f"text {n}", provenance=Provenance(source=f"docs/{n % 2}_%.md")) for n in range(450)]
    await store.store([*items, a_fact("a", "is", "b")])
    ids = [item.id for item in await all_items(store)]
    assert len(ids) == 451
    assert ids == sorted(ids)
    assert [item.text async for item in store.items(kinds=("fact",))] == ["a is b"]
    assert len([item async for item in store.items(source_prefix="docs/1_%")]) == 225
    assert [item async for item in store.items(source_prefix="docs/__")] == []


async def test_a_bad_item_rejects_its_whole_call(store: KnowledgeStore) -> None:
    with pytest.raises(KnowledgeError, match="text is empty") as caught:
        await store.store([a_text("good"), a_text("  ")])
    assert (caught.value.kind, caught.value.retryable) == ("InvalidItem", False)
    assert await all_items(store) == []
    assert await store.store([]) == []


async def test_characters_that_no_database_accepts_are_replaced(store: KnowledgeStore) -> None:
    await store.store([a_text("zero \0 and lone \ud800 surrogate", provenance=Provenance(source="a\0b"))])
    [found] = await store.recall(query_for("surrogate"))
    assert (found.item.text, found.item.provenance.source) == ("zero \ufffd and lone \ufffd surrogate", "a\ufffdb")


async def test_many_concurrent_writers_lose_nothing(opens: OpenStore, clock: Clock) -> None:
    stores = [opens(now=clock) for _ in range(3)]
    facts = [a_fact(f"service {n}", "listens on", str(n)) for n in range(20)]

    async def write(index: int) -> None:
        for fact in (facts * 2)[index % 20 : index % 20 + 20]:
            await stores[index % 3].store([fact])
            await stores[index % 3].recall(query_for(fact.subject))

    await asyncio.gather(*(write(index) for index in range(30)))
    assert sorted(item.subject for item in await all_items(stores[0])) == sorted(fact.subject for fact in facts)


async def test_items_may_change_their_kind(opens: OpenStore, clock: Clock) -> None:
    """Items in memory are grouped by kind. Removing one must not remove others."""
    one, other = opens(now=clock), opens(now=clock)
    for round_ in range(3):
        items = [
            a_text(f"lorry number {n}", key=str(n), kind="memory" if n == round_ else "document") for n in range(4)
        ]
        await one.store(items)
        found = await other.recall(query_for("lorries", kinds=("document",)))
        assert sorted(texts(found)) == [f"lorry number {n}" for n in range(4) if n != round_]
        assert texts(await other.recall(query_for("lorries", kinds=("memory",)))) == [f"lorry number {round_}"]
