"""Runs whose states are near all their limits continue as new, and end with a result."""

from typing import Any

import pytest
from temporalio.client import Client, WorkflowFailureError, WorkflowHandle
from temporalio.exceptions import ApplicationError

from orga.activities.replies import MAX_CALLS
from orga.client.proof.verify import verify
from orga.client.runs.agents import AgentHandle
from orga.testing import FakeTool, ScriptedModel, answers
from orga.workflows.decisions.begin import BEGIN_BYTES
from orga.workflows.decisions.continue_as_new import MAX_CARRIED_BYTES
from orga.workflows.types.input import MAX_TASK_BYTES, MAX_TRUSTED_BYTES
from orga.workflows.types.messages import Reply
from orga.workflows.types.status import Termination
from orga.workflows.types.tool_calls.tools import ToolOptions
from tests.support.hold import wait_until
from tests.support.runs.approvals import Asks, approval_argument, wait_for_held_calls
from tests.support.runs.loop import WORKER_FACTS, a_loop
from tests.support.runs.questions import send_update, wait_for_question
from tests.support.values.core import a_call
from tests.support.values.largest import deep, filled

SHORT = WORKER_FACTS.model_copy(update={"roll_over_events": 400, "roll_over_bytes": 10**8})
LARGE = ToolOptions(max_result_bytes=200_000)
GIVEN_UP = ToolOptions.model_validate({"recovery": {"strategy": "dead_letter", "max_attempts": 1}})
MIXED = '\x01"é😀'
"""Characters that take six and two bytes in JSON, and several bytes in UTF-8."""


def mixed(size: int) -> str:
    return filled(MIXED, size)


def many_tools(*others: FakeTool, size: int = 280_000) -> tuple[FakeTool, ...]:
    """Return 128 tools, including these, whose definitions take this many bytes."""
    count = 128 - len(others)
    each = size // count - 700
    return (*others, *(FakeTool(f"tool_{n:03}".ljust(64, "x"), parameters=deep(20, each)) for n in range(count)))


def largest_input() -> dict[str, Any]:
    return {
        "task": "do it " + mixed(MAX_TASK_BYTES - 100),
        "instructions": mixed(190_000),
        "trusted_context": {"known": mixed(MAX_TRUSTED_BYTES - 100)},
        "config": {"max_total_tokens": 10**9, "context_token_budget": 10**8, "max_output_tokens": 10**6},
    }


def proposing(tool: str, size: int = 145_000, text: int = 295_000) -> Reply:
    inner = mixed(size // MAX_CALLS - 20)
    calls = tuple(a_call(tool, f"{tool}{n}", n=n, text=inner) for n in range(MAX_CALLS))
    return Reply.of(mixed(text), calls=calls, finish="tool_calls")


async def rolled_over(handle: WorkflowHandle[Any, Any], text: str) -> None:
    """Send guidance until the run has continued as new."""
    first = (await handle.describe()).run_id

    async def has() -> bool:
        if (await handle.describe()).run_id == first:
            await handle.signal("steer", text)
        return (await handle.describe()).run_id != first

    await wait_until(has, 60)


def carried_bytes(ran: Any) -> list[int]:
    """Return the bytes of the states with which the segments of the run began."""
    started = [history.events[0].workflow_execution_started_event_attributes for history in ran.histories[1:]]
    return [sum(len(payload.data) for payload in each.input.payloads) for each in started]


async def test_the_largest_number_of_held_calls_survives_continue_as_new(client: Client) -> None:
    """If the state did not fit, the run would go on until the server ends it because its history is full."""

    def fails(arguments: dict[str, Any], context: object) -> str:
        raise ValueError(mixed(3_000))

    pay = FakeTool("pay", lambda arguments, context: f"paid {arguments['n']}", effect="irreversible")
    send = FakeTool("send", fails, options=GIVEN_UP)
    look = FakeTool("look", lambda arguments, context: mixed(190_000), options=LARGE)
    engine = Asks(approvers=tuple(f"{name}{'é' * 100}" for name in ("ada", "bob", "eve")))
    steps = [proposing("send", 90_000, 5_000), proposing("look"), proposing("pay"), answers("all paid")]
    provider, given = ScriptedModel(steps, repeats=True), largest_input()
    async with a_loop(client, provider, *many_tools(pay, send, look), engine=engine, setup=SHORT) as loop:
        handle = await loop.start(given)
        before = await wait_for_held_calls(handle, MAX_CALLS)
        for question in before[::2]:
            await send_update(handle, "deny", approval_argument(question, engine.approvers[0], reason=MIXED * 500))
        await rolled_over(handle, filled('"', 90_000))
        left = before[1::2]
        assert await wait_for_held_calls(handle, len(left)) == left
        assert not pay.contexts
        for question in left:
            await send_update(handle, "approve", approval_argument(question, engine.approvers[1]))
        ran = await loop.ended(handle)
        found = await verify(client, handle.id, exported=ran.journal)

    assert (ran.result.termination.reason, ran.result.output) == ("completed", "all paid")
    assert [check for check in found.checks if not check.ok] == []
    assert provider.seen[-1].messages[0].text == given["task"]
    assert (len(pay.contexts), ran.result.tool_calls.denied) == (MAX_CALLS // 2, MAX_CALLS // 2)
    assert MAX_CARRIED_BYTES * 0.9 < max(carried_bytes(ran)) <= MAX_CARRIED_BYTES + 1_000


async def test_results_given_by_people_for_many_stuck_steps_are_carried_over(client: Client) -> None:
    """Each result may have 100 kB, and all but the first wait until the one before is decided."""

    def fails(arguments: dict[str, Any], context: object) -> str:
        raise ValueError("no")

    look = FakeTool("look", fails, options=ToolOptions.model_validate({"breaker": {"enabled": False}}))
    config = {"step_iteration": {"max_reattempts": 1, "on_limit_reached": "escalate"}, "recovery": {"max_attempts": 1}}
    steps = [proposing("look", 20_000, 5_000), answers("done")]
    async with a_loop(client, steps, look, setup=SHORT) as loop:
        handle = await loop.start(**config)
        await wait_for_question(handle)
        asked = (await handle.query("status"))["waiting"]
        assert len(asked) == MAX_CALLS
        for wait in asked[1:]:
            resolution = {
                "escalation_id": wait["wait_id"],
                "choice": "result",
                "result": filled('"', 180_000),
                "by": "ada",
            }
            await send_update(handle, "resolve_escalation", resolution)
        await rolled_over(handle, "a note")
        assert [wait["wait_id"] for wait in (await handle.query("status"))["waiting"]] == [asked[0]["wait_id"]]
        await send_update(handle, "resolve_escalation", {"escalation_id": asked[0]["wait_id"], "choice": "skip"})
        ran = await loop.ended(handle)

    assert ran.result.termination.reason == "completed"
    assert len(look.contexts) == MAX_CALLS


async def test_input_too_large_to_be_carried_is_refused_before_the_first_model_call(client: Client) -> None:
    provider = ScriptedModel([answers()], repeats=True)
    async with a_loop(client, provider, *many_tools(size=340_000), setup=SHORT) as loop:
        handle = await loop.start(largest_input())
        with pytest.raises(WorkflowFailureError) as failed:
            await handle.result()
        status = await AgentHandle(client, handle.id).status()
    cause = failed.value.cause
    assert isinstance(cause, ApplicationError)
    assert (cause.type, cause.non_retryable) == ("InvalidInput", True)
    assert status.termination == Termination(reason="error", detail=f"InvalidInput: {cause.message}")
    assert f"over the limit of {BEGIN_BYTES}" in cause.message
    assert "task 1" in cause.message
    assert provider.seen == []
