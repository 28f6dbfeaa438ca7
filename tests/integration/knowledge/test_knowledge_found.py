"""Every store finds the same items in the same order."""

import pytest

from orga.activities.knowledge.conventions import conventions_for
from orga.activities.knowledge.ports import KnowledgeStore
from orga.workflows.types.knowledge import Reader
from tests.support.knowledge.items import Clock, a_fact, a_text, query_for, texts
from tests.support.knowledge.stores import clock, opens, store

__all__ = ["clock", "opens", "store"]


async def test_nothing_is_recalled_below_the_threshold(store: KnowledgeStore) -> None:
    await store.store([a_text("the canteen opens at noon")])
    assert await store.recall(query_for("restart payment service")) == []
    [found] = await store.recall(query_for("canteen restart payment service", threshold=0.0))
    assert await store.recall(query_for("canteen restart payment service", threshold=found.score + 0.001)) == []


async def test_inflected_and_misspelt_words_are_found(store: KnowledgeStore) -> None:
    await store.store([a_text("restarting the schedulers"), a_text("the canteen opens at noon")])
    for text in ("restart scheduler", "RESTARTS", "scheduelr restarting"):
        assert texts(await store.recall(query_for(text))) == ["restarting the schedulers"]


async def test_accents_and_other_scripts_are_found(store: KnowledgeStore) -> None:
    await store.store([a_text("Das Büro öffnet um neun"), a_text("支付服务 监听 端口"), a_text("Платёжный сервис")])
    assert texts(await store.recall(query_for("buro"))) == ["Das Büro öffnet um neun"]
    assert texts(await store.recall(query_for("监听"))) == ["支付服务 监听 端口"]
    assert texts(await store.recall(query_for("платежный"))) == ["Платёжный сервис"]


@pytest.mark.parametrize(
    "text", ['"', "a OR", "NEAR(a b)", "text:x", "* ^ -", "(((", "'; DROP TABLE items", "the", "%_\\", "\0", "x" * 9999]
)
async def test_no_query_is_parsed_as_syntax(store: KnowledgeStore, text: str) -> None:
    await store.store([a_text("a quiet text")])
    await store.recall(query_for(text, threshold=0.0))
    assert (await store.facts()).counts == {"document": 1}


async def test_a_query_without_words_returns_the_newest_first(store: KnowledgeStore, clock: Clock) -> None:
    for n in range(4):
        clock.advance(1)
        await store.store([a_text(f"text {n}")])
    assert texts(await store.recall(query_for(limit=3))) == ["text 3", "text 2", "text 1"]


async def test_a_directory_and_a_language_are_exact(store: KnowledgeStore) -> None:
    await store.store(
        [
            a_text("rules of api", kind="convention", directory="src/api"),
            a_text("rules of the root", kind="convention"),
            a_text("rules of web", kind="convention", directory="web"),
            a_text("rules of python", kind="convention", language="python"),
        ]
    )
    assert texts(await store.recall(query_for("rules", directory="src/api"))) == ["rules of api"]
    assert texts(await store.recall(query_for("", directory="src/api"))) == ["rules of api"]
    assert sorted(texts(await store.recall(query_for("", directory="")))) == ["rules of python", "rules of the root"]
    assert texts(await store.recall(query_for("", language="python"))) == ["rules of python"]
    assert texts(await store.recall(query_for("rules", directory="src"))) == []


async def test_the_most_confident_conventions_of_a_directory_are_returned(store: KnowledgeStore, clock: Clock) -> None:
    """Files are imported by name, so the conventions for agents may be the oldest of a large directory."""
    fields = {"kind": "convention", "directory": "src"}
    await store.store([a_text(f"agents {n}", key=f"a#{n}", confidence=0.95, **fields) for n in range(3)])
    clock.advance(1)
    people = [a_text(f"people {n}", key=f"b#{n:03}", confidence=0.9, **fields) for n in range(120)]
    await store.store([*people, a_text("of Python", key="c", confidence=0.8, language="python", **fields)])
    nearest = await conventions_for(store, Reader(), "src/users.py", limit=4)
    assert texts(nearest) == ["agents 0", "agents 1", "agents 2", "people 0"]

    ruby = [a_text(f"of Ruby {n}", key=f"r#{n:03}", confidence=0.99, language="ruby", **fields) for n in range(120)]
    await store.store(ruby)
    assert texts(await conventions_for(store, Reader(), "src/a.py", "python", limit=2)) == ["agents 0", "agents 1"]
    of_python = texts(await conventions_for(store, Reader(), "src/a.py", "python", limit=100))
    assert not [text for text in of_python if "Ruby" in text]


async def test_an_output_is_recalled_only_if_its_kind_is_requested(store: KnowledgeStore) -> None:
    await store.store([a_text("the report", kind="output"), a_text("a memory of the report", kind="memory")])
    assert texts(await store.recall(query_for("report"))) == ["a memory of the report"]
    assert texts(await store.recall(query_for("report", kinds=("output",)))) == ["the report"]


async def test_as_many_items_are_found_as_the_limit_allows(store: KnowledgeStore) -> None:
    await store.store([a_text(f"lorry number {n}") for n in range(120)])
    assert len(await store.recall(query_for("lorry", limit=100))) == 100


async def test_only_the_last_version_in_one_call_is_found(store: KnowledgeStore) -> None:
    lorries, bicycles = a_text("lorries", key="k"), a_text("bicycles", key="k")
    await store.store([lorries])
    stored = await store.store([lorries, bicycles, lorries])
    assert [each.change for each in stored] == ["unchanged", "updated", "updated"]
    [found] = await store.recall(query_for("lorries"))
    assert (found.item.text, found.score) == ("lorries", 1.0)
    assert await store.recall(query_for("bicycles", threshold=0.1)) == []


async def test_a_fact_ranks_before_any_number_of_memories(store: KnowledgeStore, clock: Clock) -> None:
    fact = a_fact("the api", "is deployed", "on Fridays", confidence=0.95)
    await store.store([fact])
    guesses = [f"As far as I know the payment api is deployed by the release team ({n})" for n in range(60)]
    for n, guess in enumerate(guesses):
        clock.advance(1)
        await store.store([a_text(guess, kind="memory", key=f"run {n}", subject="When is the payment api deployed?")])
    for query in ("When is the payment api deployed?", "payment api deployed by the release team", "deployed api"):
        first, *others = await store.recall(query_for(query))
        assert first.item.text == fact.text
        assert {each.item.kind for each in others} == {"memory"}
        assert all(each.score <= first.score for each in others)


async def test_a_memory_is_not_found_by_its_own_task(store: KnowledgeStore) -> None:
    await store.store([a_text("On Fridays.", kind="memory", key="k", subject="When is the payment api deployed?")])
    assert await store.recall(query_for("When is the payment api deployed?")) == []
    [found] = await store.recall(query_for("fridays"))
    assert found.item.subject == "When is the payment api deployed?"


async def test_memories_rank_like_other_items_if_no_fact_matches(store: KnowledgeStore) -> None:
    await store.store([a_text("the harbour is closed", kind="memory", key="k"), a_text("the harbour and the canteen")])
    assert texts(await store.recall(query_for("harbour closed"))) == [
        "the harbour is closed",
        "the harbour and the canteen",
    ]
