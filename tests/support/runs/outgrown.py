"""Conversations that exceed their budget: a model that reads page after page, and the records of compactions."""

import uuid
from typing import Any

import pytest
from temporalio.client import Client

from orga.activities.models.conversations import Conversations
from orga.activities.ports import HistorySource, ModelRequest
from orga.testing import FakeTool, ScriptedModel, answers, calls
from orga.workflows.types.messages import Reply
from tests.support.model.counting import CountingProvider, estimate
from tests.support.runs.loop import Loop, Ran, a_worker
from tests.support.values.turns import are_paired

BUDGET = 2_500
RUN: dict[str, Any] = {"max_total_tokens": 10**9, "max_iterations": 1_000, "context_token_budget": BUDGET}
LOOKS = 20


def looking(request: ModelRequest, number: int) -> Reply:
    """Read another page each time, then answer."""
    return calls("look", arguments={"n": number}, reply_text=f"step {number}") if number <= LOOKS else answers("done")


def pages(size: int = 1_000, **fields: Any) -> FakeTool:
    """Return a tool whose results have this many bytes."""
    return FakeTool("look", lambda arguments, context: f"page {arguments['n']} " + "x" * size, **fields)


def compactions(ran: Ran) -> list[dict[str, Any]]:
    """Return the journal entry of each compaction."""
    return [entry.data for entry in ran.journal if entry.event == "ContextCompacted"]


class Kept:
    """Makes conversations that hold this many bytes."""

    def __init__(self, max_bytes: int) -> None:
        """Make none yet."""
        self._max_bytes = max_bytes
        self.all: list[Conversations] = []

    def __call__(self, history: HistorySource) -> Conversations:
        """Make them for one worker."""
        self.all.append(Conversations(history, self._max_bytes))
        return self.all[-1]

    @property
    def misses(self) -> int:
        """The number of times that a conversation was rebuilt from its history."""
        return sum(made.misses for made in self.all)


@pytest.fixture(params=[128_000_000, 100], ids=["from the cache", "from the history"])
def kept(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Kept:
    """Run a test twice. The second time every request is rebuilt from the history, as by another worker."""
    made = Kept(request.param)
    monkeypatch.setattr("orga.client.workers.registrations.Conversations", made)
    return made


async def run_with_context(client: Client, provider: ScriptedModel, tool: FakeTool, **config: Any) -> Ran:
    """Run with pinned context from an operator, which arrives before the first model call."""
    loop = Loop(client, f"test-{uuid.uuid4()}", provider)
    handle = await loop.start("the task", **RUN | config)
    await handle.signal("add_context", "keep me")
    async with a_worker(loop, tool):
        return await loop.ended(handle)


def check_what_never_goes(provider: CountingProvider) -> None:
    """Assert that the task, the pinned context and the latest result are whole, and that the budget holds."""
    for number, request in enumerate(provider.steps):
        assert [m.text for m in request.messages[:2]] == ["the task", "[Context from the operator]\nkeep me"]
        assert are_paired(request.messages)
        assert estimate(request) <= BUDGET
        if number:
            assert request.messages[-1].text == f"page {number} " + "x" * 1_000
