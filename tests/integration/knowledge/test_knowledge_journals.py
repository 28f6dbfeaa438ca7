"""A run leaves the same journal with the embedded store and with PostgreSQL."""

from pathlib import Path
from random import Random
from typing import Any, cast

from temporalio.client import Client

from orga.activities.knowledge.ports import KnowledgeStore
from orga.testing import ScriptedModel, answers, calls
from orga.workflows.types.knowledge import KnowledgeItem
from tests.support.knowledge.items import Clock, a_fact, a_text
from tests.support.knowledge.stores import PLACES
from tests.support.runs.loop import Loop, Ran, a_loop

FACT = {"subject": "The billing service", "predicate": "listens on", "object": "port 8441", "confidence": 0.9}
TEXT = "billing service services port ports listens listening queue deploy deploying cache ticket retry café"
WORDS = TEXT.split()
OF_THE_TIME = {"duration_s", "run_id"}


async def fill(store: KnowledgeStore, clock: Clock) -> None:
    draw = Random(7)
    for _ in range(4):
        clock.advance(1)
        texts = [a_text(" ".join(draw.choices(WORDS, k=draw.randint(3, 20))), scope="global") for _ in range(40)]
        await store.store([*texts, a_fact("billing", "runs on", draw.choice(WORDS), scope="global")])
    rules = [("src", "No star imports", ""), ("", "Sign your commits", ""), ("lib", "Lines are short", "python")]
    await store.store(
        [
            KnowledgeItem(kind="convention", text=text, directory=directory, language=language, scope="global")
            for directory, text, language in rules
        ]
    )


async def run_with_id(loop: Loop, client: Client, id_: str, task: str) -> Ran:
    handle: Any = await client.start_workflow(
        "AgentWorkflow", {"task": task, "config": {"knowledge": {}}}, id=id_, task_queue=loop.task_queue
    )
    return await loop.ended(handle)


async def journals(client: Client, store: KnowledgeStore) -> list[list[tuple[str, Any]]]:
    steps = [
        calls("store_knowledge", arguments=FACT),
        calls("recall_knowledge", arguments={"query": "which port does billing listen on"}),
        answers("It is stored."),
        answers("Port 8441."),
    ]
    async with a_loop(client, ScriptedModel(steps, repeats=True), knowledge=store) as loop:
        runs = [
            await run_with_id(loop, client, "the-same-1", "Find out about the billing service in src/billing.py"),
            await run_with_id(loop, client, "the-same-2", "On which port does billing listen?"),
        ]
    return [[(entry.event, timeless(entry.data)) for entry in run.journal] for run in runs]


def timeless(data: Any) -> Any:
    """Remove what differs between two executions. The memory of a run has an id that depends on its execution."""
    if isinstance(data, dict):
        reported = {
            key: timeless(value) for key, value in cast("dict[str, Any]", data).items() if key not in OF_THE_TIME
        }
        return reported | {"id": "of the run"} if reported.get("kind") == "memory" else reported
    return [timeless(each) for each in cast("list[Any]", data)] if isinstance(data, list) else data


async def test_both_stores_leave_the_same_journal(client: Client, tmp_path: Path) -> None:
    found: list[list[list[tuple[str, Any]]]] = []
    for name in ("sqlite", "postgres"):
        clock = Clock()
        async with PLACES[name](tmp_path) as opens:
            store = opens(now=clock)
            await fill(store, clock)
            found.append(await journals(client, store))
    assert found[0] == found[1]
    recalled = [data for run in found[0] for event, data in run if event == "KnowledgeRecalled"]
    assert [len(data["items"]) for data in recalled[:3]] == [5, 5, 5]
    assert [item["score"] for item in recalled[0]["items"]][:2] == [1.0, 1.0], (
        "the conventions of src, which the task names"
    )
