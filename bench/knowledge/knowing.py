"""(o) The growth of a history by knowledge: the same run with knowledge on and off."""

import uuid
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from temporalio.client import Client

from bench.figures import Figure
from bench.sides.ours import ReadFile, our_input
from bench.sides.rig import Rig
from bench.sides.script import MODEL, TOOL, Script
from orga.activities.adapters.agents.agents import ConfiguredAgents
from orga.activities.adapters.knowledge.embedders import HashingEmbedder
from orga.activities.adapters.knowledge.knowledge_tools import RecallKnowledge, StoreKnowledge
from orga.activities.adapters.knowledge.sqlite.sqlite_store import SqliteStore
from orga.activities.adapters.policy.engines import ListedTools
from orga.activities.adapters.schemas.arguments import find_argument_errors
from orga.activities.ports import Tool, ToolContext
from orga.client.workers.parts import Parts
from orga.worker import build_worker
from orga.workflows.types.agents import AgentConfig
from orga.workflows.types.knowledge import KnowledgeItem
from orga.workflows.types.setup import Setup
from orga.workflows.types.tool_calls.tools import ToolOutput

TASK_QUEUE = "bench-knowing"
SHORT, LONG = 20, 60
"""Iterations. A figure per iteration is the difference of the two runs, so that start and end do not count."""

TOPICS = ("harbour", "ledger", "lantern", "granite", "orchard", "violin", "glacier", "saddle")
MAX_EVENTS = 1
"""Limit for an iteration with other words than the previous one. One with the same words adds no event."""


class _Reader(ReadFile):
    """Reads about these topics in turn."""

    def __init__(self, topics: tuple[str, ...]) -> None:
        super().__init__()
        self._topics = topics
        self._reads = 0

    async def call(self, arguments: dict[str, Any], context: ToolContext) -> ToolOutput:
        self._reads += 1
        topic = self._topics[self._reads % len(self._topics)]
        return ToolOutput(content=f"{topic} stories of the old {topic}, told beside every {topic} " + "x" * 1_900)


async def measure(rig: Rig) -> list[Figure]:
    """Return the figures for iterations about one topic, and for iterations with changing topics."""
    with TemporaryDirectory() as folder:
        store = SqliteStore(Path(folder) / "knowledge.db", HashingEmbedder())
        await store.store([_fact(topic) for topic in TOPICS])
        figures = await _figures(rig.ours.client, store, "of the same words", TOPICS[:1], 0)
        figures += await _figures(rig.ours.client, store, "of other words", TOPICS, MAX_EVENTS)
        await store.close()
    return figures


def _fact(topic: str) -> KnowledgeItem:
    fame = f"the {topic} stories of its people"
    text = f"{topic} is known for {fame}"
    return KnowledgeItem(kind="fact", text=text, subject=topic, predicate="is known for", object=fame)


async def _figures(
    client: Client, store: SqliteStore, what: str, topics: tuple[str, ...], most_events: int
) -> list[Figure]:
    on, off = [await _each(client, store, topics, knows=knows) for knows in (True, False)]
    added = round(on.events - off.events, 1)  # a slow machine splits a workflow task now and then
    return [
        Figure("o", f"events an iteration {what}", "", on.events, off.events, added, most_events),
        Figure("o", f"bytes an iteration {what}", "bytes", on.size, off.size),
    ]


class _Length(NamedTuple):
    """The length of a history, or of an iteration in it."""

    events: float
    size: float


async def _each(client: Client, store: SqliteStore, topics: tuple[str, ...], *, knows: bool) -> _Length:
    long, short = [await _run(client, store, _Reader(topics), n, knows=knows) for n in (LONG, SHORT)]
    more = LONG - SHORT
    return _Length((long.events - short.events) / more, (long.size - short.size) / more)


async def _run(client: Client, store: SqliteStore, reader: ReadFile, iterations: int, *, knows: bool) -> _Length:
    """Return the length of the history of such a run."""
    tools: list[Tool] = [reader, RecallKnowledge(store), StoreKnowledge(store)]
    facts = Setup(agent="", model="", roll_over_events=10**6)
    specs = {tool.spec.name: tool.spec for tool in tools}
    agents = ConfiguredAgents({"default": AgentConfig(tools=(TOOL,))}, specs, MODEL, lambda name: None, facts)
    parts = Parts(agents, Script(), ListedTools(), find_argument_errors, tools, knowledge=store)
    given = our_input(iterations)
    if knows:
        given["config"]["knowledge"] = {"auto_persist": False, "max_context_items": 1}
    async with build_worker(client, parts, TASK_QUEUE):
        handle = await client.start_workflow(
            "AgentWorkflow", given, id=f"knowing-{uuid.uuid4()}", task_queue=TASK_QUEUE, result_type=dict
        )
        result = await handle.result()
    assert result["iterations"] == iterations, result["termination"]
    described = (await handle.describe()).raw_description.workflow_execution_info
    return _Length(described.history_length, described.history_size_bytes)
