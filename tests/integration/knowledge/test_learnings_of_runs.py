"""A run stores what it learnt when it ends, through the gate, however it ends."""

import asyncio
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from temporalio.client import Client

from orga.activities.adapters.knowledge.sqlite.sqlite_store import SqliteStore
from orga.testing import FakeTool, ScriptedModel, answers, calls
from orga.workflows.types.agents import AgentConfig
from orga.workflows.types.input import LoopConfig, RunKnowledge
from orga.workflows.types.messages import Reply
from tests.support.runs.critics import a_critic
from tests.support.runs.knowing import ON, PORT, HeldStore, Judging, all_of, event_data, store, stores
from tests.support.runs.loop import Deny, Loop, a_loop, a_worker

__all__ = ["store"]


async def test_a_denied_store_call_stores_nothing(client: Client, store: SqliteStore) -> None:
    engine = Judging("store_knowledge")
    provider = ScriptedModel([stores(**PORT), answers("done")], repeats=True)
    async with a_loop(client, provider, knowledge=store, engine=engine) as loop:
        ran = await loop.run("hello", **ON)

    assert await all_of(store) == []
    assert event_data(ran, "KnowledgeStored") == []
    about = [each.get("about") for each in event_data(ran, "PolicyEvaluated")]
    assert about == [None, None, "learnings"]
    learning = engine.asked[-1]
    assert learning.call is not None
    assert (learning.purpose, learning.call.name) == ("learning", "store_knowledge")
    assert ran.result.tool_calls.denied == 1, "storing at the end is not a call of the model"


LOOKS = calls("look", reply_text="The door is green.")
ENDINGS: dict[str, tuple[list[Reply], dict[str, Any], str]] = {
    "an answer": ([LOOKS, answers("Green.")], {}, "completed"),
    "iterations": ([LOOKS, answers("Green.")], {"max_iterations": 1}, "max_iterations"),
    "tokens": ([LOOKS, answers("Green.")], {"max_total_tokens": 1}, "max_tokens"),
    "time": ([LOOKS, calls("wait")], {"timeout_s": 20}, "timeout"),
    "a model that fails": ([LOOKS], {}, "error"),
    "a gate that lets no answer through": ([LOOKS, *[answers("It is secret.")] * 3], {}, "policy_denial"),
}


@pytest.mark.parametrize(("steps", "config", "reason"), ENDINGS.values(), ids=ENDINGS)
async def test_every_ending_with_findings_is_learnt_from(
    client: Client, store: SqliteStore, steps: list[Reply], config: dict[str, Any], reason: str
) -> None:
    async def waits(arguments: dict[str, Any], context: Any) -> str:
        await asyncio.sleep(60)
        return "too late"

    tools, engine = (FakeTool("look"), FakeTool("wait", waits)), Deny(words=["secret"])
    async with a_loop(client, ScriptedModel(steps), *tools, knowledge=store, engine=engine) as loop:
        ran = await loop.run("Which colour?", **ON, **config)
    assert ran.result.termination.reason == reason
    (kept,) = await all_of(store)
    assert (kept.subject, kept.text[:18]) == ("Which colour?", "The door is green.")
    assert [each["kind"] for each in event_data(ran, "KnowledgeStored")] == ["memory"]


async def test_learnings_that_a_critic_would_review_are_not_stored_at_the_end(
    client: Client, store: SqliteStore
) -> None:
    config = LoopConfig(knowledge=RunKnowledge())
    agent = AgentConfig(tools=(), critics=(a_critic(tools=("store_knowledge",)),), config=config)
    loop = Loop(client, f"critics-{uuid4()}", ScriptedModel([answers("Green.")], repeats=True))
    async with a_worker(loop, knowledge=store, agents={"default": agent}):
        ran = await loop.run("Which colour?")
    assert ran.result.output == "Green."
    assert (await all_of(store), event_data(ran, "KnowledgeStored")) == ([], [])


@pytest.mark.parametrize("how", ["abort", "Temporal's cancel"])
async def test_an_aborted_run_is_learnt_from(client: Client, store: SqliteStore, how: str) -> None:
    async def aborts(arguments: dict[str, Any], context: Any) -> str:
        await (handle.signal("abort", "enough") if how == "abort" else handle.cancel())
        return "never seen"

    async with a_loop(client, ScriptedModel([LOOKS], repeats=True), FakeTool("look", aborts), knowledge=store) as loop:
        handle = await loop.start("Which colour?", **ON)
        ran = await loop.ended(handle)
    assert ran.result.termination.reason == "aborted"
    (kept,) = await all_of(store)
    assert "The door is green." in kept.text


async def test_a_run_without_any_text_has_learnt_nothing(client: Client, store: SqliteStore) -> None:
    async with a_loop(client, [calls("look")], FakeTool("look"), knowledge=store) as loop:
        ran = await loop.run("Which colour?", **ON, max_iterations=1)
    assert (await all_of(store), event_data(ran, "KnowledgeStored")) == ([], [])


async def test_a_run_that_found_no_answer_has_learnt_nothing(client: Client, store: SqliteStore) -> None:
    steps = [calls("look", reply_text="Let me look at the door."), answers("I looked, but I could not find that out.")]
    async with a_loop(client, steps, FakeTool("look"), knowledge=store) as loop:
        ran = await loop.run("Which colour?", **ON)
    assert ran.result.termination.reason == "completed"
    assert (await all_of(store), event_data(ran, "KnowledgeStored")) == ([], [])


async def test_nothing_is_learnt_if_the_config_forbids_it(client: Client, store: SqliteStore) -> None:
    async with a_loop(client, [answers("Green.")], knowledge=store) as loop:
        await loop.run("Which colour?", knowledge={"auto_persist": False})
    assert await all_of(store) == []


@pytest.mark.parametrize("kind", ["steer", "add_context"])
async def test_guidance_during_the_storing_of_learnings_is_refused_in_the_journal(
    client: Client, tmp_path: Path, kind: str
) -> None:
    """The ending is final. The guidance reaches no model, and its sender must not believe that it did."""
    held, provider = HeldStore(tmp_path / "knowledge.db"), ScriptedModel([answers("Green.")], repeats=True)
    async with a_loop(client, provider, knowledge=held) as loop:
        handle = await loop.start("Which colour?", **ON)
        await held.hold.reached()
        await handle.signal(kind, "look at the door again")
        held.hold.go.set()
        ran = await loop.ended(handle)
        kept = await all_of(held)
    await held.close()
    refused = event_data(ran, "InterventionRefused")
    assert [(each["kind"], "rewind or fork the run" in each["reason"]) for each in refused] == [(kind, True)]
    assert (ran.result.output, len(provider.given)) == ("Green.", 1)
    assert [(item.kind, item.text.endswith("Green.")) for item in kept] == [("memory", True)]
    assert [each["kind"] for each in event_data(ran, "KnowledgeStored")] == ["memory"]
