"""The journal of a delegate is part of its parent's, also across continue-as-new, and can be verified."""

import asyncio
from typing import Any

import pytest
from temporalio.client import Client

from orga.client.errors import HISTORY_GONE, RunNotFound
from orga.client.history.chain import RunChain, run_chain
from orga.client.journal.reading import read_journal
from orga.client.proof.verify import verify
from orga.client.runs.agents import AgentHandle
from orga.testing import FakeTool, answers, calls
from orga.workflows.types.messages import Reply
from orga.workflows.types.status import JournalEntry
from tests.support.hold import wait_for_event
from tests.support.runs.delegates import (
    PAIR,
    a_cast,
    agent,
    children_of,
    delegates,
    run_lead,
    start_lead,
    untrusted_text,
)
from tests.support.runs.loop import WORKER_FACTS, histories_of

EACH_ITERATION = WORKER_FACTS.model_copy(update={"roll_over_events": 1})


async def test_a_delegate_that_continues_as_new_has_one_result_and_one_journal(client: Client) -> None:
    agents = PAIR | {"helper": agent("helper", tools=["look"])}
    scripts = {
        "lead": [delegates("helper"), answers("done")],
        "helper": [calls("look"), calls("look"), answers("found")],
    }
    async with a_cast(client, agents, scripts, FakeTool("look"), setup=EACH_ITERATION) as (loop, cast):
        ran = await run_lead(loop)
        [child] = await children_of(client, ran)
        assert len(await histories_of(client, child)) == 3

    assert untrusted_text(cast.messages_to("lead")[-1]) == "found"
    iterations = [e.iteration for e in ran.journal if e.data.get("run") == child and e.event == "ReasoningComplete"]
    assert iterations == [1, 2, 3]


async def test_delegates_are_nested_in_the_journal_before_their_end(client: Client) -> None:
    ready = asyncio.Event()

    async def last(request: Any) -> Reply:
        await wait_for_event(ready)
        return answers("one")

    async def first(request: Any) -> Reply:
        ready.set()
        return answers("two")

    agents = {"lead": agent("lead", "one", "two"), "one": agent("one"), "two": agent("two")}
    scripts = {"lead": [delegates("one", "two"), answers()], "one": [last], "two": [first]}
    async with a_cast(client, agents, scripts) as (loop, _):
        handle = await start_lead(loop)
        followed = asyncio.create_task(_followed(client, handle.id))
        ran = await loop.ended(handle)
        again = [entry async for entry in read_journal(client, handle.id)]

    own = ["Started", "ReasoningComplete", "PolicyEvaluated", "Terminated"]
    reported = [(entry.agent, entry.event) for entry in ran.journal]
    start = reported.index(("lead", "DelegationStarted"))
    ended = [i for i, step in enumerate(reported) if step == ("lead", "DelegationEnded")]
    assert reported[start + 1] == ("lead", "DelegationStarted")
    first_nested, second_nested = reported[start + 2 : ended[0]], reported[ended[0] + 1 : ended[1]]
    assert {first_nested[0][0], second_nested[0][0]} == {"one", "two"}
    for nested in (first_nested, second_nested):
        assert [event for _, event in nested if event in own] == own
        assert len({name for name, _ in nested}) == 1
    for i in ended:
        assert ran.journal[i - 1].data["run"] == ran.journal[i].data["workflow_id"]
    assert ran.journal == again == await followed
    usage = ran.journal[ended[0]].data["usage"]
    assert (usage["total_tokens"], ran.journal[ended[0]].data["reason"]) == (110, "completed")


async def _followed(client: Client, workflow_id: str) -> list[JournalEntry]:
    return [event async for event in AgentHandle(client, workflow_id).events() if isinstance(event, JournalEntry)]


async def test_a_run_with_delegates_and_its_exported_journal_verify(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    agents = PAIR | {"helper": agent("helper", "hand"), "hand": agent("hand")}
    scripts = {
        "lead": [delegates("helper", "helper"), answers("done")],
        "helper": [delegates("hand"), delegates("hand"), answers("handed on")],
        "hand": [answers("seen")],
    }
    async with a_cast(client, agents, scripts) as (loop, _):
        ran = await run_lead(loop)
    found = await verify(client, ran.handle.id, exported=ran.journal)

    assert [check for check in found.checks if not check.ok] == []
    assert {check.workflow_id for check in found.checks} == {
        ran.handle.id + below for below in ("", ".1.0", ".1.1", ".1.0.1.0", ".1.1.1.0")
    }

    gone = f"{ran.handle.id}.1.0"

    async def chain_after_retention(client: Client, run: str) -> RunChain:
        if run == gone:
            raise RunNotFound(run)
        return await run_chain(client, run)

    monkeypatch.setattr("orga.client.proof.verify.run_chain", chain_after_retention)
    [lacking] = [check for check in (await verify(client, ran.handle.id)).checks if not check.ok]
    assert (lacking.name, lacking.workflow_id, lacking.detail) == ("delegate", gone, HISTORY_GONE)
