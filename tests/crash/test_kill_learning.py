"""Workers are killed right after they stored or recalled knowledge: it exists once and is recorded once."""

import signal
from typing import Any

import pytest
from temporalio.client import Client

from orga.activities.adapters.knowledge.embedders import HashingEmbedder
from orga.activities.adapters.knowledge.sqlite.sqlite_store import SqliteStore
from orga.testing import FakeTool
from tests.support.crash.stage import Case, Outcomes, dying_at, outcome_of, play_all
from tests.support.crash.worker import Backstage


def a_look(backstage: Backstage) -> list[FakeTool]:
    """Return a tool whose result mentions the fact, so that the run recalls it."""
    return [backstage.tool("look", "read_only", lambda _: "blue as ever")]


RUN: dict[str, Any] = {
    "plan": ("fact:sky+blue", "look"),
    "cast": a_look,
    "config": {"knowledge": {"relevance_threshold": 0.1}},
}

CASES: dict[str, Case] = {
    "learning": Case(**RUN),
    "learning, after a fact": dying_at("stored fact", **RUN),
    "learning, after its learnings": dying_at("stored memory", **RUN),
    "learning, after a recall": dying_at("recalled", **RUN),
}


@pytest.fixture(scope="module")
async def outcomes(client: Client, tmp_path_factory: pytest.TempPathFactory) -> Outcomes:
    return await play_all(client, CASES, tmp_path_factory.mktemp)


@pytest.mark.parametrize("case", CASES)
async def test_learnt_knowledge_exists_once(outcomes: Outcomes, case: str) -> None:
    outcome, undisturbed = outcome_of(outcomes, case), outcome_of(outcomes, "learning")
    store = SqliteStore(outcome.folder / "knowledge.db", HashingEmbedder())
    try:
        items = [item async for item in store.items()]
    finally:
        await store.close()

    assert outcome.exits == ([-signal.SIGKILL] if "," in case else [])
    assert sorted(item.kind for item in items) == ["fact", "memory"]
    assert {item.provenance.workflow_id for item in items} == {outcome.ran.handle.id}
    assert [each["kind"] for each in outcome.data("KnowledgeStored")] == ["fact", "memory"]
    assert [event for event, _, _ in outcome.journal] == [event for event, _, _ in undisturbed.journal]
    assert [len(each["items"]) for each in outcome.data("KnowledgeRecalled")] == [0, 1]
