"""Both stores give the same items the same ids, order and scores, so that journals are equal."""

from collections.abc import AsyncGenerator, Sequence
from pathlib import Path
from random import Random

import pytest

from orga.activities.knowledge.ports import KnowledgeStore
from orga.workflows.types.knowledge import Erasure, KnowledgeItem, Reader, Recall
from tests.support.knowledge.items import Clock, a_fact, a_text, owned, query_for
from tests.support.knowledge.stores import PLACES

TEXT = """restart restarting restarts service services scheduler queue queues worker workers deploy deployed deployment
database databases relational relation port listens listening timeout timeouts retry retries cache caching token
naïve café Straße foo_bar src/api/v1 user@host.test 10.0.0.1 v2.3 it's 监听 支付服务 hopefulness generalizations running
ponies flying flies dying agreed feed plastered sized meetings university universal"""
WORDS = TEXT.split()

TENANTS = ("", "acme", "other")


@pytest.fixture
async def both(tmp_path: Path) -> AsyncGenerator[tuple[Clock, list[KnowledgeStore]]]:
    clock = Clock()
    async with PLACES["sqlite"](tmp_path) as sqlite, PLACES["postgres"](tmp_path) as postgres:
        yield clock, [sqlite(now=clock), postgres(now=clock)]


def some_items(draw: Random, count: int) -> list[KnowledgeItem]:
    items: list[KnowledgeItem] = []
    for _ in range(count):
        where = owned(draw.choice(("tenant", "tenant", "global")), draw.choice(TENANTS))
        if draw.random() < 0.3:
            items.append(a_fact(draw.choice(WORDS), draw.choice(WORDS), draw.choice(WORDS), **where))
        else:
            text = " ".join(draw.choices(WORDS, k=draw.randint(1, 40)))
            items.append(a_text(text, confidence=round(draw.random(), 3), **where))
    return items


def some_queries(draw: Random, count: int) -> list[Recall]:
    return [
        query_for(
            " ".join(draw.choices(WORDS, k=draw.randint(1, 8))),
            reader=Reader(tenant=draw.choice(TENANTS)),
            limit=draw.choice((1, 5, 30)),
            threshold=draw.choice((0.0, 0.3)),
        )
        for _ in range(count)
    ]


async def recalled_scores(store: KnowledgeStore, queries: Sequence[Recall]) -> list[list[tuple[str, float]]]:
    return [[(each.item.id, each.score) for each in await store.recall(one)] for one in queries]


@pytest.mark.parametrize(
    ("seed", "count"), [(1, 3), (2, 40), (3, 700)], ids=["a few", "some", "more than are compared"]
)
async def test_both_stores_recall_the_same(both: tuple[Clock, list[KnowledgeStore]], seed: int, count: int) -> None:
    clock, stores = both
    draw = Random(seed)
    items, queries = some_items(draw, count), some_queries(draw, 25)
    parts = [items[at : at + 50] for at in range(0, count, 50)]
    for part in parts:
        clock.advance(1)
        stored = [await store.store(part) for store in stores]
        assert stored[0] == stored[1]
    found = [await recalled_scores(store, queries) for store in stores]
    assert found[0] == found[1]
    assert any(found[0])


async def test_both_stores_choose_the_same_items_for_very_common_words(
    both: tuple[Clock, list[KnowledgeStore]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The test exceeds the limits that keep searches short."""
    monkeypatch.setattr("orga.activities.adapters.knowledge.store.COMMON", 40)
    clock, stores = both
    draw = Random(4)
    items, queries = some_items(draw, 600), some_queries(draw, 25)
    for store in stores:
        await store.store(items)
    clock.advance(1)
    found = [await recalled_scores(store, queries) for store in stores]
    assert found[0] == found[1]


async def test_both_stores_find_the_same_in_a_folder_and_without_words(
    both: tuple[Clock, list[KnowledgeStore]],
) -> None:
    clock, stores = both
    rules = [
        a_text(f"rule {n} of restarts", kind="convention", directory="src/api" if n % 2 else "") for n in range(30)
    ]
    for rule in rules:
        clock.advance(1)
        for store in stores:
            await store.store([rule])
    queries = [
        query_for("restart", directory="src/api"),
        query_for("", directory=""),
        query_for("", limit=7),
        query_for("rule 3", limit=9),
    ]
    assert await recalled_scores(stores[0], queries) == await recalled_scores(stores[1], queries)


async def test_both_stores_resolve_contradictions_of_many_facts_alike(both: tuple[Clock, list[KnowledgeStore]]) -> None:
    """There are more facts than a store compares at once, in one call and in several, at one time and at several."""
    clock, stores = both
    draw = Random(5)
    for _ in range(6):
        clock.advance(draw.choice((0, 1)))
        facts = [a_fact("the build", "takes", f"{draw.randrange(90)} minutes") for _ in range(25)]
        stored = [await store.store(facts) for store in stores]
        assert stored[0] == stored[1]
    kept = [[item async for item in store.items()] for store in stores]
    assert kept[0] == kept[1]
    assert len(kept[0]) > 50
    gone = Erasure(ids=tuple(item.id for item in kept[0][:20]))
    assert await stores[0].forget(gone) == await stores[1].forget(gone)
    left = [[item async for item in store.items()] for store in stores]
    assert left[0] == left[1]
