"""Knowledge with the embedded store: from run to run, who may recall it, and what it adds to the history."""

from collections.abc import Sequence
from pathlib import Path

from temporalio.client import Client

from orga.activities.adapters.knowledge.conventions.changes import ConventionTarget, import_conventions
from orga.activities.adapters.knowledge.sqlite.sqlite_store import SqliteStore
from orga.testing import FakeTool, ScriptedModel, answers, calls
from orga.workflows.types.knowledge import KnowledgeItem, Reader
from tests.support.knowledge.items import a_fact
from tests.support.runs.knowing import ON, PORT, all_of, blocks, event_data, store, stores
from tests.support.runs.loop import Ran, a_loop

__all__ = ["store"]


async def test_a_second_run_recalls_what_the_first_learnt(client: Client, store: SqliteStore) -> None:
    provider = ScriptedModel(
        [stores(**PORT, confidence=0.9), answers("It is stored."), answers("Port 8441.")], repeats=True
    )
    async with a_loop(client, provider, knowledge=store) as loop:
        first = await loop.run({"task": "Find out about the billing service", "tenant": "acme"}, **ON)
        second = await loop.run({"task": "On which port does billing listen?", "tenant": "acme"}, **ON)

    (shown,) = blocks(provider.given[2])
    assert "The billing service listens on port 8441" in shown
    assert f"run={first.handle.id}, iteration=1, model=scripted:model" in shown
    facts = [item for item in await all_of(store) if item.kind == "fact"]
    assert [(f.subject, f.object, f.confidence, f.owner.tenant) for f in facts] == [
        ("The billing service", "port 8441", 0.9, "acme")
    ]
    assert [each["kind"] for each in event_data(first, "KnowledgeStored")] == ["fact", "memory"]
    assert event_data(second, "KnowledgeRecalled")[0]["items"][0]["id"] == facts[0].id
    assert second.result.output == "Port 8441."


async def test_the_model_recalls_through_its_tool(client: Client, store: SqliteStore) -> None:
    await store.store([a_fact(*PORT.values())])
    ask = calls("recall_knowledge", arguments={"query": "billing service port", "limit": 3})
    nothing = calls("recall_knowledge", arguments={"query": "penguins in the antarctic"})
    provider = ScriptedModel([ask, nothing, answers("done")], repeats=True)
    async with a_loop(client, provider, knowledge=store) as loop:
        ran = await loop.run("hello", **ON)

    results = [message for message in provider.seen[-1].messages if message.role == "tool"]
    assert "The billing service listens on port 8441" in results[0].text
    assert results[1].text == "Nothing that is stored fits. Go on with what you know, or look elsewhere."
    assert not any(result.is_error for result in results)
    by_place = {each["place"]: each for each in event_data(ran, "KnowledgeRecalled") if "place" in each}
    assert (by_place["1.0"]["terms"], len(by_place["1.0"]["items"])) == (["billing service port"], 1)
    assert by_place["2.0"]["items"] == []


async def test_the_tools_are_offered_if_knowledge_is_enabled(client: Client, store: SqliteStore) -> None:
    provider = ScriptedModel([answers("done")], repeats=True)
    async with a_loop(client, provider, knowledge=store) as loop:
        for settings in (None, {"enabled": False}, {}):
            await loop.run("hello there", knowledge=settings)
    offered = [[tool.name for tool in request.tools] for request in provider.given]
    assert offered == [[], [], ["recall_knowledge", "store_knowledge"]]


async def test_conventions_of_a_directory_reach_the_model_that_works_there(client: Client, store: SqliteStore) -> None:
    def convention(text: str, directory: str, language: str = "") -> KnowledgeItem:
        return KnowledgeItem(kind="convention", text=text, directory=directory, language=language, scope="tenant")

    await store.store(
        [
            convention("Handlers stay thin", "src/api"),
            convention("No star imports", "src"),
            convention("Sign your commits", ""),
            convention("Lines have 120 characters", "lib", "python"),
            convention("Buttons are round", "web"),
        ]
    )
    asked = {"query": "conventions", "directory": "src/api/users.py", "scope": "conventions", "limit": 9}
    provider = ScriptedModel([calls("recall_knowledge", arguments=asked), answers("done")], repeats=True)
    async with a_loop(client, provider, knowledge=store) as loop:
        await loop.run("Work on src/api/users.py", **ON)
    result = next(message.text for message in provider.seen[-1].messages if message.role == "tool")
    order = ["Handlers stay thin", "No star imports", "Sign your commits", "Lines have 120 characters"]
    assert [result.index(text) for text in order] == sorted(result.index(text) for text in order)
    assert "Buttons" not in result


async def test_conventions_of_a_named_file_are_shown_without_a_query(
    client: Client, store: SqliteStore, tmp_path: Path
) -> None:
    """A run gets the conventions of a file's folder and its parents, even if they share no word with the task."""
    rules = {
        "src/api": "Handlers stay thin.",
        "src": "No star imports.",
        ".": "Sign it off.",
        "web": "Buttons are round.",
    }
    project = tmp_path / "project"
    for directory, rule in rules.items():
        (project / directory).mkdir(parents=True, exist_ok=True)
        (project / directory / "AGENTS.md").write_text(rule)
    async for _ in import_conventions(
        store, project, ConventionTarget("project", "", "tenant", Reader()), lambda done, total: None
    ):
        pass
    provider = ScriptedModel([answers("done")], repeats=True)
    async with a_loop(client, provider, knowledge=store) as loop:
        ran = await loop.run("Give src/api/users.py round buttons", **ON)
        await loop.run("Finish it and/or celebrate", **ON)

    (shown,) = blocks(provider.given[0])
    order = [shown.index(rules[directory]) for directory in ("src/api", "src", ".")]
    assert order == sorted(order)
    assert rules["web"] not in shown, "its words match, but it applies elsewhere"
    assert [item["score"] for item in event_data(ran, "KnowledgeRecalled")[0]["items"]] == [1.0, 1.0, 1.0]
    assert blocks(provider.given[1]) == [], "a task without a path gets no conventions"


async def test_conventions_stay_while_the_work_on_a_file_continues(client: Client, store: SqliteStore) -> None:
    """Tool results soon contain other words, but the calls still name the file that the agent works on."""
    thin = KnowledgeItem(kind="convention", text="Handlers stay thin.", directory="src/api", scope="tenant")
    await store.store([thin])
    words = (f"{number} " + " ".join(f"figure{number}{letter}" for letter in "abcdefghijkl") for number in range(9))
    read = FakeTool("read", lambda arguments, context: next(words))
    first = calls("read", arguments={"path": "src/api/users.py"})
    other = calls("read", arguments={"query": "figures"})
    provider = ScriptedModel([first, other, other, other, answers("done")], repeats=True)
    async with a_loop(client, provider, read, knowledge=store) as loop:
        ran = await loop.run("Mend the users", **ON)

    assert ["Handlers stay thin." in "".join(blocks(request)) for request in provider.given] == [False, *[True] * 4]
    assert event_data(ran, "KnowledgeRecalled")[-1]["terms"][0] == "src/api/users.py"


def events(ran: Ran) -> Sequence[str]:
    return [event.WhichOneof("attributes") or "" for history in ran.histories for event in history.events]


async def test_a_step_with_the_same_words_adds_no_event(client: Client, store: SqliteStore) -> None:
    """A marker is added only if the words change. The end stores what the run learnt."""
    await store.store([a_fact("The warehouse", "stands at", "the harbour crane")])
    lengths: dict[tuple[bool, int], int] = {}
    markers: dict[int, int] = {}
    look = FakeTool("look", lambda arguments, context: "warehouse harbour crane")
    for looks in (2, 6):
        for settings in (None, {"auto_persist": False}):
            provider = ScriptedModel([*[calls("look")] * looks, answers("done")], repeats=True)
            async with a_loop(client, provider, look, knowledge=store) as loop:
                ran = await loop.run("warehouse harbour crane", knowledge=settings)
            lengths[settings is not None, looks] = len(events(ran))
            if settings is not None:
                markers[looks] = len(event_data(ran, "KnowledgeRecalled"))
    assert markers == {2: 1, 6: 1}
    assert lengths[True, 2] - lengths[False, 2] == lengths[True, 6] - lengths[False, 6] == 1
