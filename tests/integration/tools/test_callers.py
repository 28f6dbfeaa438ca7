"""A tool knows whose call it is: the run, its agent, tenant and trusted context, and who approved the call."""

import json
import uuid
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest
from temporalio.client import Client
from temporalio.exceptions import ApplicationError

from orga.activities.adapters.tools.activity_tool import DeferredTool
from orga.activities.adapters.tools.python_function import PythonFunction
from orga.activities.calls.tools import CallServices, tool_activities
from orga.activities.gate.permits import PermitKeys
from orga.activities.models.conversations import Conversations
from orga.activities.ports import Tool, ToolContext
from orga.activities.tools_api import tool
from orga.client.proof.verify import verify
from orga.testing import ScriptedModel, answers, calls
from orga.worker import build_worker
from orga.workflows.types.agents import AgentConfig
from orga.workflows.types.tool_calls.delegation import Delegate
from orga.workflows.types.tool_calls.tools import ToolRequest
from tests.support.runs.approvals import Asks, approval_argument, wait_for_held_calls
from tests.support.runs.deferred import completion, waiting_calls
from tests.support.runs.loop import Loop, Ran, a_loop, parts_of
from tests.support.runs.questions import send_update, tool_results_in
from tests.support.tools.activities import Beats, NoHistory
from tests.support.tools.whose import facts_of, whose, whose_in_a_process

KEYS = PermitKeys(["k" * 32])
FACTS = {"user": "ada", "limits": {"cents": 900, "rate": 1.0}}
OWNED = {"task": "do it", "tenant": "acme", "trusted_context": FACTS}


@tool(effect="read_only")
def plain() -> str:
    """Return a word."""
    return "plain"


async def inputs_of(client: Client, ran: Ran, name: str) -> list[dict[str, Any]]:
    """Return the inputs of a tool's calls, as the history has them."""
    begun = [event.activity_task_scheduled_event_attributes for one in ran.histories for event in one.events]
    return [
        (await client.data_converter.decode(each.input.payloads))[0]
        for each in begun
        if each.activity_type.name == name
    ]


@pytest.mark.parametrize("function", [whose, whose_in_a_process])
async def test_a_function_knows_whose_call_it_is(client: Client, function: Callable[..., str]) -> None:
    one = PythonFunction(function)
    async with a_loop(client, [calls(one.spec.name), answers()], one, engine=Asks(tools=(one.spec.name,))) as loop:
        handle = await loop.start(OWNED)
        [held] = await wait_for_held_calls(handle)
        await send_update(handle, "approve", approval_argument(held, approver="grace"))
        await loop.ended(handle)
    [text] = tool_results_in(loop)
    assert json.loads(text) == [handle.id, handle.first_execution_run_id, "default", "acme", FACTS, "grace"]


async def test_a_run_without_such_facts_has_only_its_agent(client: Client) -> None:
    async with a_loop(client, [calls("whose"), answers()], PythonFunction(whose)) as loop:
        ran = await loop.run()
    assert json.loads(tool_results_in(loop)[0])[2:] == ["default", "", {}, ""]
    assert [each["caller"] for each in await inputs_of(client, ran, "whose")] == [{"agent": "default"}]


async def test_the_history_has_the_facts_only_for_tools_that_take_them(client: Client) -> None:
    tools = [PythonFunction(whose), PythonFunction(plain)]
    async with a_loop(client, [calls("whose", "plain"), answers()], *tools) as loop:
        ran = await loop.run(OWNED)
    [with_caller], [without] = await inputs_of(client, ran, "whose"), await inputs_of(client, ran, "plain")
    assert with_caller["caller"] == {"agent": "default", "tenant": "acme", "trusted_context": FACTS}
    assert "caller" not in without


def noting(found: list[str]) -> Callable[..., None]:
    """Return a function that notes whose call it is."""

    def note(call: ToolContext) -> None:
        """Note it."""
        found.append(facts_of(call))

    return note


async def test_a_delegate_calls_for_the_same_tenant_under_its_own_name(client: Client) -> None:
    found: list[str] = []
    script = [calls("delegate", arguments={"agent": "clerk", "task": "look"}), calls("note"), answers(), answers()]
    agents = {
        "default": AgentConfig(tools=("delegate",), delegates=(Delegate(agent="clerk"),)),
        "clerk": AgentConfig(tools=("note",)),
    }
    async with a_loop(client, script, PythonFunction(noting(found)), agents=agents) as loop:
        await loop.run(OWNED)
    assert [json.loads(each)[2:] for each in found] == [["clerk", "acme", FACTS, ""]]


async def test_the_start_of_a_deferred_tool_knows_it_too(client: Client) -> None:
    found: list[str] = []
    job = DeferredTool("job", start=noting(found))
    async with a_loop(client, [calls("job"), answers()], job) as loop:
        handle = await loop.start(OWNED)
        [wait] = await waiting_calls(handle, 1)
        await send_update(handle, "complete_tool_call", completion(wait))
        await loop.ended(handle)
    assert [json.loads(each)[2:] for each in found] == [["default", "acme", FACTS, ""]]


@asynccontextmanager
async def signing(client: Client, *tools: Tool) -> AsyncGenerator[Loop]:
    """Run a worker that has permit keys."""
    loop = Loop(client, f"test-{uuid.uuid4()}", ScriptedModel([calls("whose"), answers()], repeats=True))
    parts = replace(parts_of(loop, *tools), permits=KEYS)
    async with build_worker(client, parts, loop.task_queue):
        yield loop


@pytest.mark.parametrize(
    ("forged", "is_refused"),
    [
        ({}, False),
        ({"tenant": "other"}, True),
        ({"agent": "admin"}, True),
        ({"trusted_context": {**FACTS, "user": "eve"}}, True),
        ({"approver": "grace"}, True),
        (None, True),
    ],
    ids=["as the gate signed it", "another tenant", "another agent", "another user", "an approver", "nobody"],
)
async def test_a_permit_is_for_one_caller(client: Client, forged: dict[str, Any] | None, is_refused: bool) -> None:
    one = PythonFunction(whose)
    async with signing(client, one) as loop:
        ran = await loop.run(OWNED)
    assert [check.name for check in (await verify(client, ran.handle.id, permits=KEYS)).checks if not check.ok] == []
    [given] = await inputs_of(client, ran, "whose")
    caller = {} if forged is None else {"caller": {**given.pop("caller"), **forged}}
    request = ToolRequest.model_validate({**given, "caller": None, **caller})
    again = Beats(
        workflow_id=ran.handle.id,
        workflow_run_id=ran.handle.first_execution_run_id,
        activity_id="1.0",
        activity_type="whose",
        namespace=client.namespace,
    )
    [run] = tool_activities([one], CallServices(Conversations(NoHistory()), permits=KEYS))
    if is_refused:
        with pytest.raises(ApplicationError, match="no valid permit"):
            await again.run(run, request)
    else:
        assert json.loads((await again.run(run, request)).content)[3] == "acme"
