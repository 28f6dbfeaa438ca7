"""Runs with knowledge: a store in the test's own file, the blocks shown to the model, the journal entries."""

from collections.abc import AsyncGenerator, Sequence
from pathlib import Path
from typing import Any

import pytest

from orga.activities.adapters.knowledge.embedders import HashingEmbedder
from orga.activities.adapters.knowledge.sqlite.sqlite_store import SqliteStore
from orga.activities.ports import ModelRequest
from orga.testing import calls
from orga.workflows.types.knowledge import KnowledgeItem, Stored, StoredItem
from orga.workflows.types.messages import Reply
from orga.workflows.types.tool_calls.gate import GateRequest, Verdict
from tests.support.hold import Hold
from tests.support.runs.loop import Deny, Ran

ON: dict[str, Any] = {"knowledge": {}}
BLOCK = "[KNOWLEDGE_CONTEXT]"
PORT = {"subject": "The billing service", "predicate": "listens on", "object": "port 8441"}


@pytest.fixture
async def store(tmp_path: Path) -> AsyncGenerator[SqliteStore]:
    opened = SqliteStore(tmp_path / "knowledge.db", HashingEmbedder())
    yield opened
    await opened.close()


async def all_of(store: SqliteStore) -> list[StoredItem]:
    return [item async for item in store.items()]


def blocks(request: ModelRequest) -> list[str]:
    return [message.text for message in request.messages if message.text.startswith(BLOCK)]


def event_data(ran: Ran, event: str) -> list[dict[str, Any]]:
    return [entry.data for entry in ran.journal if entry.event == event]


def stores(**arguments: Any) -> Reply:
    return calls("store_knowledge", arguments=arguments)


class Judging(Deny):
    """An engine that keeps its requests."""

    def __init__(self, *tools: str) -> None:
        super().__init__(*tools)
        self.asked: list[GateRequest] = []

    async def judge(self, proposal: GateRequest) -> Verdict:
        self.asked.append(proposal)
        return await super().judge(proposal)


class HeldStore(SqliteStore):
    """A store that blocks before it stores the learnings of a run or a turn."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, HashingEmbedder())
        self.hold = Hold()

    async def store(self, items: Sequence[KnowledgeItem]) -> list[Stored]:
        await self.hold.then(None)
        return await super().store(items)
