"""Circuits and repeated calls of a run on a real server: what the model reads and what the journal records."""

import asyncio
import re
from typing import Any

import pytest
from temporalio.client import Client, WorkflowHandle

from orga.activities.ports import ModelRequest, ToolContext, ToolError
from orga.testing import FakeTool, ScriptedModel, answers, calls
from orga.workflows.types.messages import Reply
from orga.workflows.types.tool_calls.breakers import BreakerOptions
from orga.workflows.types.tool_calls.tools import ToolOptions
from tests.support.runs.loop import Ran, a_loop
from tests.support.runs.questions import send_update, wait_for_question


def down(arguments: dict[str, Any], context: ToolContext) -> str:
    raise ConnectionError("no route")


def missing(arguments: dict[str, Any], context: ToolContext) -> str:
    raise ToolError(f"no such file: {arguments.get('path')}")


def call_of(path: str) -> Reply:
    return calls("read", arguments={"path": path})


def a_tool(body: Any, **breaker: Any) -> FakeTool:
    return FakeTool("read", body, options=ToolOptions(max_attempts=1, breaker=BreakerOptions(**breaker)))


def tool_results(provider: ScriptedModel) -> list[str]:
    return [message.text for message in provider.seen[-1].messages if message.role == "tool"]


def data_of(ran: Ran, event: str) -> list[dict[str, Any]]:
    return [entry.data for entry in ran.journal if entry.event == event]


async def test_a_circuit_of_the_run_opens_is_tried_and_closes(client: Client) -> None:
    tool = a_tool(down, recovery_s=3)

    async def later(request: ModelRequest) -> Reply:
        tool.body = lambda arguments, context: "back again"
        await asyncio.sleep(3.1)  # the circuit's time is the server's
        return call_of("e")

    provider = ScriptedModel([call_of("a"), call_of("b"), call_of("c"), call_of("d"), later, answers()], repeats=True)
    async with a_loop(client, provider, tool) as loop:
        ran = await loop.run()

    results = tool_results(provider)
    assert re.search(r"read is left alone for [1-3] s more \(failures in a row: 3; last: \w+\)", results[3])
    assert (results[4], len(tool.contexts)) == ("back again", 4)
    opened = {"tool": "read", "scope": "run", "failures": 3, "recovery_s": 3.0, "cause": "ConnectionError"}
    assert data_of(ran, "CircuitOpened") == [opened]
    assert data_of(ran, "CircuitClosed") == [{"tool": "read", "scope": "run"}]


async def test_a_reported_tool_error_does_not_open_the_circuit(client: Client) -> None:
    tool = a_tool(missing)
    steps = [call_of(path) for path in "abcde"]
    async with a_loop(client, [*steps, answers()], tool) as loop:
        ran = await loop.run()
    assert len(tool.contexts) == 5
    assert data_of(ran, "CircuitOpened") == []


async def test_a_step_that_fails_the_same_way_twice_is_not_run_again(client: Client) -> None:
    tool = a_tool(missing)
    provider = ScriptedModel([call_of("a"), call_of("a"), call_of("a"), call_of("b"), answers()], repeats=True)
    async with a_loop(client, provider, tool) as loop:
        ran = await loop.run()

    results = tool_results(provider)
    assert results[2].startswith("[Step limit] read with these arguments is not run again: it failed 2 times")
    assert "no such file: b" in results[3]
    assert len(tool.contexts) == 3
    assert [(data["tool"], data["attempts"]) for data in data_of(ran, "StepLimitReached")] == [("read", 2)]


async def test_abort_task_ends_the_run_with_its_results(client: Client) -> None:
    async with a_loop(client, [call_of("a")], a_tool(missing)) as loop:
        ran = await loop.run(step_iteration={"on_limit_reached": "abort_task"})
    assert (ran.result.termination.reason, ran.result.iterations) == ("error", 2)
    assert ran.result.termination.detail.startswith("step limit of read, it failed 2 times, the last two alike")


async def decide(handle: WorkflowHandle[Any, Any], choice: str, **fields: str) -> None:
    """Answer the one question that the run asks."""
    wait = await wait_for_question(handle)
    assert (wait["kind"], wait["wait_id"], wait["data"]["tool"]) == ("escalation", "step-2-1", "read")
    decision = {"escalation_id": wait["wait_id"], "choice": choice, **fields}
    await send_update(handle, "resolve_escalation", decision)


@pytest.mark.parametrize(
    ("choice", "fields", "reason", "runs"),
    [
        pytest.param("retry", {}, "completed", 3, id="retry lets it run again"),
        pytest.param("skip", {}, "completed", 2, id="skip does not"),
        pytest.param("result", {"result": "it says 42"}, "completed", 2, id="a result takes its place"),
        pytest.param("abort", {"by": "anna", "reason": "hopeless"}, "escalated", 2, id="abort ends the run"),
    ],
)
async def test_a_person_decides_about_a_step_without_progress(
    client: Client, choice: str, fields: dict[str, str], reason: str, runs: int
) -> None:
    tool = a_tool(missing)
    provider = ScriptedModel([call_of("a"), call_of("a"), call_of("a"), answers()], repeats=True)
    async with a_loop(client, provider, tool) as loop:
        handle = await loop.start(step_iteration={"on_limit_reached": "escalate"})
        await decide(handle, choice, **fields)
        ran = await loop.ended(handle)

    assert (ran.result.termination.reason, len(tool.contexts)) == (reason, runs)
    given = [message.text for message in provider.seen[-1].messages if "[Result from the operator]" in message.text]
    assert given == (['[Result from the operator] read {"path":"a"}\nit says 42'] if choice == "result" else [])
