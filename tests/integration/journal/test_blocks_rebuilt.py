"""The block of recalled knowledge is rebuilt from the history as the model saw it, whatever the store holds now."""

from typing import Any

import pytest
from temporalio.client import Client

from orga.activities.adapters.knowledge.sqlite.sqlite_store import SqliteStore
from orga.activities.models.conversations import ByteCache
from orga.activities.ports import ModelRequest
from orga.client.proof.verify import verify
from orga.testing import FakeTool, ScriptedModel, answers, calls
from orga.workflows.types.knowledge import Erasure
from orga.workflows.types.messages import Reply
from orga.workflows.types.setup import Setup
from tests.support.knowledge.items import a_fact
from tests.support.model.counting import counting
from tests.support.runs.knowing import ON, all_of, blocks, event_data, store
from tests.support.runs.loop import WORKER_FACTS, Ran, a_loop

__all__ = ["store"]

TALK = ("warehouse harbour crane", "warehouse harbour crane", "invoice ledger", "nothing known here")


async def a_long_run(client: Client, store: SqliteStore, setup: Setup = WORKER_FACTS) -> tuple[Ran, ScriptedModel]:
    facts = [("The warehouse", "stands at", "the harbour crane"), ("An invoice", "enters", "the ledger by hand")]
    await store.store([a_fact(*each) for each in facts])

    def talk(arguments: dict[str, Any], context: object) -> str:
        return TALK[int(arguments["n"])]

    look = FakeTool("look", talk)
    steps = [calls("look", arguments={"n": n}) for n in range(4)]
    provider = ScriptedModel([*steps, answers("done")], repeats=True)
    async with a_loop(client, provider, look, knowledge=store, setup=setup) as loop:
        return await loop.run("See what there is", **ON, context_token_budget=30_000), provider


async def test_verify_rebuilds_the_block_even_if_the_store_is_empty(client: Client, store: SqliteStore) -> None:
    ran, provider = await a_long_run(client, store)
    assert any(blocks(request) for request in provider.given)
    await store.forget(Erasure(tenant=""))
    assert await all_of(store) == []
    found = await verify(client, ran.handle.id)
    assert not [check for check in found.checks if not check.ok]


async def test_the_block_is_kept_across_continue_as_new(client: Client, store: SqliteStore) -> None:
    ran, provider = await a_long_run(client, store, WORKER_FACTS.model_copy(update={"roll_over_events": 20}))
    assert len(ran.histories) > 1
    assert all(len(blocks(request)) <= 1 for request in provider.given)
    alone = [blocks(request) for request in provider.given]
    await store.forget(Erasure(tenant=""))
    whole, other = await a_long_run(client, store)
    assert len(whole.histories) == 1
    assert [blocks(request) for request in other.given] == alone
    assert not [check for check in (await verify(client, ran.handle.id)).checks if not check.ok]


def _forgets(*given: object) -> None:
    """Keep nothing."""


async def test_a_worker_without_cached_state_rebuilds_the_block(
    client: Client, store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, provider = await a_long_run(client, store)
    await store.forget(Erasure(tenant=""))
    monkeypatch.setattr(ByteCache, "put", _forgets)
    _, forgetful = await a_long_run(client, store)
    assert [blocks(request) for request in forgetful.given] == [blocks(request) for request in provider.given]


@pytest.mark.parametrize("strategy", ["sliding_window", "observation_masking", "anchored_summary"])
async def test_blocks_and_contexts_beyond_their_budget_are_rebuilt(
    client: Client, store: SqliteStore, strategy: str
) -> None:
    """Blocks appear and disappear while older messages are dropped. Every context is rebuilt from the history."""
    words = ["harbour", "ledger", "lantern", "granite", "orchard", "violin"]
    await store.store([a_fact(word.title(), "is known for", f"its {word} stories") for word in words])
    look = FakeTool("look", lambda arguments, context: f"{words[arguments['n'] % 6]} " + "x" * 2_000)

    def reading(request: ModelRequest, number: int) -> Reply:
        return calls("look", arguments={"n": number}) if number <= 12 else answers("done")

    provider = counting(reading, lambda request, number: Reply.of(f"summary {number}"))
    async with a_loop(client, provider, look, knowledge=store) as loop:
        ran = await loop.run("the task", **ON, context_strategy=strategy, context_token_budget=3_000)

    assert event_data(ran, "ContextCompacted")
    shown = [block for request in provider.steps for block in blocks(request)]
    assert len(set(shown)) > 3
    assert all(len(blocks(request)) <= 1 for request in provider.steps)
    assert not [check for check in (await verify(client, ran.handle.id)).checks if not check.ok]
