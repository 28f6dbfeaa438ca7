"""Calls made by a fallback are like any call: they are recorded, counted and limited by `max_tool_calls`."""

import asyncio
from typing import Any

import pytest
from temporalio.client import Client

from orga.activities.ports import ToolContext, ToolError
from orga.client.proof.verify import verify
from orga.testing import FakeTool, answers, calls
from orga.workflows.types.tool_calls.gate import GateRequest, Verdict
from orga.workflows.types.tool_calls.recovery import Recovery
from orga.workflows.types.tool_calls.tools import Effect, ToolOptions
from tests.support.hold import Hold
from tests.support.runs.loop import WORKER_FACTS, Deny, Ran, a_loop
from tests.support.values.policies import a_verdict

ONCE: dict[str, Any] = {"max_attempts": 1, "base_delay_ms": 1}


def down(arguments: dict[str, Any], context: ToolContext) -> str:
    raise ToolError("down")


def a_tool(name: str, *alternatives: str, body: Any = down, effect: Effect = "idempotent") -> FakeTool:
    recovery = Recovery(**ONCE, strategy="fallback", alternatives=alternatives) if alternatives else Recovery(**ONCE)
    return FakeTool(name, body, effect=effect, options=ToolOptions(recovery=recovery))


def works(arguments: dict[str, Any], context: ToolContext) -> str:
    return "fine"


def made(ran: Ran) -> list[dict[str, Any]]:
    """Return the calls of all fallbacks in the journal."""
    return [call for entry in ran.journal if entry.event == "RecoveryTriggered" for call in entry.data["calls"]]


async def test_fallback_calls_are_recorded_with_name_arguments_and_outcome(client: Client) -> None:
    tools = [a_tool("save", "tape", "safe", "cloud"), a_tool("tape"), a_tool("safe"), a_tool("cloud", body=works)]
    script = [calls("save", arguments={"text": "all of it"}), answers()]
    async with a_loop(client, script, *tools, engine=Deny("safe")) as loop:
        ran = await loop.run()
    arguments = {"text": "all of it"}
    assert made(ran) == [
        {"tool": "tape", "place": "1.0.f0", "arguments": arguments, "outcome": "failed", "error": "ToolError: down"},
        {
            "tool": "safe",
            "place": "1.0.f1",
            "arguments": arguments,
            "outcome": "denied",
            "error": "[Policy denied] safe is forbidden",
        },
        {"tool": "cloud", "place": "1.0.f2", "arguments": arguments, "outcome": "ok"},
    ]
    counts = {"proposed": 4, "run": 3, "denied": 1, "failed": 1, "fallbacks": 3}
    assert ran.result.tool_calls.model_dump() == counts
    assert (await verify(client, ran.handle.id)).ok


async def test_arguments_changed_by_policy_are_recorded(client: Client) -> None:
    class Changes:
        """An engine that allows everything."""

        is_embedded = True

        async def judge(self, proposal: GateRequest) -> Verdict:
            """Shorten the text for the cloud."""
            changes = proposal.call is not None and proposal.call.name == "cloud"
            return a_verdict(True, arguments={"text": "less"} if changes else None)

    tools = [a_tool("save", "cloud"), a_tool("cloud", body=works)]
    async with a_loop(client, [calls("save", arguments={"text": "all"}), answers()], *tools, engine=Changes()) as loop:
        ran = await loop.run()
    assert [call["arguments"] for call in made(ran)] == [{"text": "less"}]


@pytest.mark.parametrize(("limit", "run"), [(1, 1), (2, 2), (3, 3), (4, 3)])
async def test_no_fallback_exceeds_the_limit_of_calls(client: Client, limit: int, run: int) -> None:
    tools = [a_tool("save", "tape", "cloud"), a_tool("tape"), a_tool("cloud", body=works)]
    async with a_loop(client, [calls("save"), answers()], *tools) as loop:
        ran = await loop.run(max_tool_calls=limit)
    assert sum(len(tool.contexts) for tool in tools) == run
    assert (ran.result.tool_calls.run, ran.result.tool_calls.spent) == (run, run)
    assert (ran.result.tool_calls.not_run > 0) == (limit < 3)


async def test_parallel_calls_leave_room_for_only_one_fallback(client: Client) -> None:
    """Two of three calls start at once. Of their two fallbacks only one fits, whichever comes first."""
    tools = [a_tool("save", "cloud"), a_tool("keep", "cloud"), a_tool("cloud", body=works)]
    async with a_loop(client, [calls("save", "keep"), answers()], *tools) as loop:
        ran = await loop.run(max_tool_calls=3)
    assert sorted(len(tool.contexts) for tool in tools) == [1, 1, 1]
    assert ran.result.tool_calls.run == 3
    assert sum("are used up" in call.get("error", "") for call in made(ran)) == 1


class Together:
    """An engine that judges two fallbacks at the same moment."""

    is_embedded = False

    def __init__(self) -> None:
        self._both = asyncio.Barrier(2)

    async def judge(self, proposal: GateRequest) -> Verdict:
        """Allow the call. Judge a fallback once the other one is asked about, too."""
        if proposal.purpose == "fallback":
            await self._both.wait()
        return a_verdict(True)


async def test_two_fallbacks_allowed_at_once_share_the_remaining_budget(client: Client) -> None:
    """When the gate was asked there was room for either of them."""
    tools = [a_tool("save", "cloud"), a_tool("keep", "cloud"), a_tool("cloud", body=works)]
    setup = WORKER_FACTS.model_copy(update={"gate_execution": "activity"})
    async with a_loop(client, [calls("save", "keep"), answers()], *tools, engine=Together(), setup=setup) as loop:
        ran = await loop.run(max_tool_calls=3)
    assert sorted(len(tool.contexts) for tool in tools) == [1, 1, 1]
    assert sum("are used up" in call.get("error", "") for call in made(ran)) == 1


async def test_lookups_before_the_first_step_respect_the_limit_too(client: Client) -> None:
    fetch = a_tool("fetch_url", "cloud", effect="read_only")
    fetch.parameters = {"type": "object", "properties": {"url": {"type": "string"}}, "required": ["url"]}
    tools = [fetch, a_tool("cloud", body=works, effect="read_only")]
    async with a_loop(client, [answers()], *tools) as loop:
        ran = await loop.run("read https://example.org/a", max_tool_calls=1)
        more = await loop.run("read https://example.org/a", max_tool_calls=2)
    assert (ran.result.tool_calls.run, ran.result.tool_calls.not_run) == (1, 1)
    assert (more.result.tool_calls.run, [call["arguments"] for call in made(more)]) == (
        2,
        [{"url": "https://example.org/a"}],
    )


async def test_fallback_calls_before_an_abort_are_recorded(client: Client) -> None:
    hold = Hold()

    async def hangs(arguments: dict[str, Any], context: ToolContext) -> str:
        return await hold.then("never")

    tools = [a_tool("save", "tape", "cloud"), a_tool("tape"), a_tool("cloud", body=hangs)]
    async with a_loop(client, [calls("save"), answers()], *tools) as loop:
        handle = await loop.start()
        await hold.reached()
        await handle.signal("abort", "enough")
        ran = await asyncio.wait_for(loop.ended(handle), 30)
    assert [(call["tool"], call["outcome"]) for call in made(ran)] == [("tape", "failed"), ("cloud", "cancelled")]
    assert (ran.result.tool_calls.run, ran.result.tool_calls.failed) == (3, 3)
