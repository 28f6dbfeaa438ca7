"""A delegate gets a share of its parent's tools, budgets and slots."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from temporalio.client import Client

from orga.activities.ports import ModelRequest
from orga.client.testing.script import Step
from orga.testing import FakeTool, answers, calls
from orga.workflows.types.messages import Reply
from orga.workflows.types.tool_calls.gate import GateRequest, Verdict
from tests.support.hold import wait_for_event
from tests.support.runs.delegates import (
    PAIR,
    a_cast,
    agent,
    children_of,
    delegates,
    result_of,
    run_lead,
    untrusted_text,
)
from tests.support.values.policies import a_verdict


@pytest.mark.parametrize("by", ["config", "gate", "both", "starter"])
async def test_a_delegate_has_only_the_tools_left_to_it(client: Client, by: str) -> None:
    class Narrowing:
        is_embedded = True

        async def judge(self, proposal: GateRequest) -> Verdict:
            is_delegation = proposal.call is not None and proposal.call.name == "delegate"
            return (
                a_verdict(True, tools=("look", "send") if by == "both" else ("look",))
                if is_delegation
                else a_verdict(True)
            )

    look, send = FakeTool("look"), FakeTool("send")
    left = {"agent": "helper", "tools": ["look"]}
    agents = {
        "lead": agent("lead", "helper" if by in {"gate", "starter"} else left),
        "helper": agent("helper", tools=["look", "send"]),
    }
    scripts = {"lead": [delegates("helper"), answers()], "helper": [calls("look", "send"), answers("could not send")]}
    engine = None if by in {"config", "starter"} else Narrowing()
    chosen: dict[str, Any] = {"tools": ["look", "delegate"]} if by == "starter" else {}
    async with a_cast(client, agents, scripts, look, send, engine=engine) as (loop, cast):
        await loop.run({"task": "lead", "agent": "lead", **chosen})

    assert [tool.name for tool in cast.seen("helper")[0].tools] == ["look"]
    assert cast.messages_to("helper")[-1] == "[Invalid call] there is no tool 'send'; the tools are: look"
    assert (len(look.contexts), len(send.contexts)) == (1, 0)


async def test_a_tool_excluded_at_the_start_is_missing_in_every_delegate(client: Client) -> None:
    """This includes a delegate's own tools and those that the run's agent lists."""
    agents = {
        "lead": agent("lead", "helper", tools=["look", "send"]),
        "helper": agent("helper", "hand", tools=["look", "send", "pay"]),
        "hand": agent("hand", tools=["look", "send", "pay"]),
    }
    scripts = {
        "lead": [delegates("helper"), answers("done")] * 2,
        "helper": [delegates("hand"), answers("handed on")] * 2,
        "hand": [answers("nothing to send with")],
    }
    tools = [FakeTool(name) for name in ("look", "send", "pay")]
    async with a_cast(client, agents, scripts, *tools) as (loop, cast):
        await loop.run({"task": "lead", "agent": "lead", "tools": ["look", "delegate"]})
        await loop.run({"task": "lead", "agent": "lead", "tools": ["delegate", "pay"]})
    assert [[tool.name for tool in request.tools] for request in cast.seen("lead")[::2]] == [
        ["look", "delegate"],
        ["delegate"],
    ]
    assert [[tool.name for tool in request.tools] for request in cast.seen("hand")] == [["look"], ["pay"]]


async def test_a_delegate_of_a_delegate_can_only_have_less(client: Client) -> None:
    agents = {
        "lead": agent("lead", {"agent": "helper", "tools": ["look", "delegate"]}),
        "helper": agent("helper", {"agent": "hand", "tools": ["look", "send"]}, tools=["look"]),
        "hand": agent("hand", tools=["look", "send"]),
    }
    scripts = {
        "lead": [delegates("helper"), answers("done")],
        "helper": [delegates("hand"), answers("handed on")],
        "hand": [calls("look"), answers("seen")],
    }
    async with a_cast(client, agents, scripts, FakeTool("look"), FakeTool("send")) as (loop, cast):
        ran = await run_lead(loop)
        [child] = await children_of(client, ran)

    assert [tool.name for tool in cast.seen("hand")[0].tools] == ["look"]
    assert untrusted_text(cast.messages_to("helper")[-1]) == "seen"
    assert untrusted_text(cast.messages_to("lead")[-1]) == "handed on"
    assert (ran.result.usage.model_calls, ran.result.tool_calls.delegated) == (6, 2)
    [started] = [entry for entry in ran.journal if entry.event == "Started" and entry.agent == "hand"]
    assert started.data["run"] == f"{child}.1.0"
    assert started.data["input"]["lineage"]["chain"] == ["lead", "helper"]


async def test_a_delegate_stops_at_its_share_and_the_parent_reads_its_text(client: Client) -> None:
    """The delegate's only reply exceeds its share, and the reserve of the parent pays for that."""
    agents = PAIR | {"helper": agent("helper", tools=["look"])}
    scripts = {"lead": [delegates("helper"), answers("enough")], "helper": [calls("look", reply_text="so far")]}
    async with a_cast(client, agents, scripts, FakeTool("look")) as (loop, cast):
        ran = await run_lead(loop, max_total_tokens=500)
        [child] = await children_of(client, ran)
        ended = await result_of(client, child)

    assert ended["termination"] == {"reason": "max_tokens", "detail": "220 of 195 tokens"}
    assert (ran.result.termination.reason, ran.result.output) == ("completed", "enough")
    assert ran.result.usage.total_tokens == 110 + 220 + 110
    assert len(cast.seen("lead")) == 2
    outcome = next(entry for entry in ran.journal if entry.event == "ObservationsCollected" and "run" not in entry.data)
    assert outcome.data["outcomes"][0]["outcome"] == "failed"


async def test_parallel_delegates_share_the_budget_and_return_the_rest(client: Client) -> None:
    scripts = {
        "lead": [delegates("helper", "helper"), delegates("helper"), answers("done")],
        "helper": [answers("quick")],
    }
    async with a_cast(client, PAIR, scripts) as (loop, _):
        ran = await run_lead(loop, max_total_tokens=2_000, max_model_calls=12, max_tool_calls=10)
        await children_of(client, ran)

    started = [entry for entry in ran.journal if entry.event == "Started" and "run" in entry.data]
    ceilings = [entry.data["input"]["lineage"]["ceiling"] for entry in started]
    *both, alone = [ceiling["max_total_tokens"] for ceiling in ceilings]
    assert (sorted(both), alone) == ([472, 473], 780), "half is reserved for the parent"
    assert [ceiling["max_model_calls"] for ceiling in ceilings] == [5, 5, 7]
    assert [ceiling["max_tool_calls"] for ceiling in ceilings] == [4, 4, 7]
    assert ran.result.usage.total_tokens == 660


async def test_delegates_of_one_reply_run_in_parallel_and_answer_in_call_order(client: Client) -> None:
    """Each delegate waits for the other."""
    begun = {"1": asyncio.Event(), "2": asyncio.Event()}

    def meeting(mine: str, other: str) -> Callable[[ModelRequest], Awaitable[Reply]]:
        async def step(request: ModelRequest) -> Reply:
            begun[mine].set()
            await wait_for_event(begun[other])
            return answers(mine)

        return step

    agents = {"lead": agent("lead", "one", "two"), "one": agent("one"), "two": agent("two")}
    scripts: dict[str, list[Step]] = {
        "lead": [delegates("one", "two"), answers()],
        "one": [meeting("1", "2")],
        "two": [meeting("2", "1")],
    }
    async with a_cast(client, agents, scripts) as (loop, cast):
        ran = await run_lead(loop)
        assert len(await children_of(client, ran)) == 2

    assert [untrusted_text(text) for text in cast.messages_to("lead")[-2:]] == ["1", "2"]


async def test_delegates_respect_max_concurrent_tools(client: Client) -> None:
    """A delegate takes one slot of its parent. Its own calls use the slots of its own run."""
    at_once: list[int] = []
    running = 0

    async def work(request: Any) -> Reply:
        nonlocal running
        running += 1
        at_once.append(running)
        await asyncio.sleep(0.2)
        running -= 1
        return answers("done")

    agents = PAIR | {"helper": agent("helper", tools=["look"])}
    scripts = {"lead": [delegates("helper", "helper", "helper"), answers()], "helper": [work]}
    async with a_cast(client, agents, scripts, FakeTool("look")) as (loop, _):
        ran = await run_lead(loop, max_concurrent_tools=1)

    assert at_once == [1, 1, 1]
    assert ran.result.tool_calls.run == 3
