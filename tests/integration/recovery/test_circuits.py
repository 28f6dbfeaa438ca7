"""Circuits of scope `worker` on a real server: runs share them, and only faults of the tool open them."""

import asyncio
import uuid
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import datetime
from typing import Any

import pytest
from temporalio.client import Client

from orga.activities.adapters.agents.agents import ConfiguredAgents
from orga.activities.adapters.policy.engines import ListedTools
from orga.activities.adapters.schemas.arguments import find_argument_errors
from orga.activities.circuits import WorkerBreakers, monotonic_time
from orga.activities.ports import ModelError, ToolContext, ToolError
from orga.client.testing.script import ScriptedModels, Step
from orga.client.workers.parts import Parts
from orga.testing import FakeTool, ScriptedModel, answers, calls
from orga.worker import build_worker
from orga.workflows.types.agents import AgentConfig
from orga.workflows.types.messages import Message, Reply
from orga.workflows.types.tool_calls.breakers import BreakerOptions, CircuitOptions
from orga.workflows.types.tool_calls.tools import ToolOptions
from tests.support.hold import Hold, wait_for_event, wait_until
from tests.support.runs.circuits import Clock
from tests.support.runs.loop import WORKER_FACTS, Loop

LEFT_ALONE = "[Circuit open] flaky is left alone for 60 s more (failures in a row: 3; last: "


@asynccontextmanager
async def a_shared_worker(
    client: Client,
    steps: Sequence[Step],
    *tools: FakeTool,
    clock: Callable[[], datetime] | None = None,
    model_breaker: CircuitOptions | None = None,
) -> AsyncGenerator[tuple[Loop, ScriptedModel, WorkerBreakers]]:
    """Run a worker whose circuits the test can inspect."""
    provider, breakers = ScriptedModel(steps, repeats=True), WorkerBreakers(clock or Clock())
    names = tuple(tool.name for tool in tools)
    agents = {"default": AgentConfig(tools=names)}
    specs = {tool.name: tool.spec for tool in tools}
    parts = Parts(
        ConfiguredAgents(agents, specs, "scripted:model", lambda model: None, WORKER_FACTS),
        ScriptedModels(provider),
        ListedTools(),
        find_argument_errors,
        tools,
        model_breaker or CircuitOptions(),
        breakers,
    )
    loop = Loop(client, f"test-{uuid.uuid4()}", provider)
    async with build_worker(client, parts, loop.task_queue):
        yield loop, provider, breakers


def flaky(body: Callable[[dict[str, Any], ToolContext], Any], **options: Any) -> FakeTool:
    """Return a tool whose circuit the worker keeps."""
    known: dict[str, Any] = {"max_attempts": 1, "breaker": BreakerOptions(scope="worker")}
    return FakeTool("flaky", body, options=ToolOptions(**known | options))


def down(arguments: dict[str, Any], context: ToolContext) -> str:
    raise ConnectionError("no route")


def call_of(number: int) -> Reply:
    """Return a call with its own arguments, because a repeated call would be stopped."""
    return calls("flaky", arguments={"n": number})


def results(provider: ScriptedModel) -> list[str]:
    """Return the results that the model read in the last run."""
    return [message.text for message in provider.seen[-1].messages if message.role == "tool"]


def last(provider: ScriptedModel) -> Message:
    return provider.seen[-1].messages[-1]


async def test_runs_share_the_circuit_of_a_tool(client: Client) -> None:
    clock, tool = Clock(), flaky(down)
    steps = [call_of(1), call_of(2), call_of(3), answers(), call_of(4), answers(), call_of(5), answers()]
    async with a_shared_worker(client, steps, tool, clock=clock) as (loop, provider, breakers):
        await loop.run()
        assert (len(tool.contexts), breakers.circuit("flaky").state) == (3, "open")

        await loop.run()
        assert len(tool.contexts) == 3
        assert (LEFT_ALONE in last(provider).text, last(provider).is_error) == (True, True)

        clock.seconds = 60
        tool.body = lambda arguments, context: "back again"
        await loop.run()
        assert (last(provider).text, len(tool.contexts)) == ("back again", 4)
        assert breakers.circuit("flaky").state == "closed"


async def test_a_failed_trial_opens_the_circuit_again(client: Client) -> None:
    clock, tool = Clock(), flaky(down)
    steps = [call_of(1), call_of(2), call_of(3), answers(), call_of(4), call_of(5), answers()]
    async with a_shared_worker(client, steps, tool, clock=clock) as (loop, provider, _):
        await loop.run()
        clock.seconds = 60
        await loop.run()
    reported = results(provider)
    assert ("no route" in reported[0], "left alone for 60 s more (failures in a row: 4; last: " in reported[1]) == (
        True,
        True,
    )
    assert len(tool.contexts) == 4


async def test_while_a_run_tries_the_tool_another_call_is_rejected(client: Client) -> None:
    clock, tool, hold = Clock(), flaky(down), Hold()
    steps = [call_of(1), call_of(2), call_of(3), answers(), call_of(4), call_of(5), answers("second"), answers("first")]
    async with a_shared_worker(client, steps, tool, clock=clock) as (loop, provider, breakers):
        await loop.run()
        clock.seconds = 60
        tool.body = lambda arguments, context: hold.then("back again")
        first = await loop.start()
        await hold.reached()
        assert (await loop.run()).result.output == "second"
        assert "flaky is left alone while another call tries it" in last(provider).text
        hold.go.set()
        assert (await loop.ended(first)).result.output == "first"
        assert breakers.circuit("flaky").state == "closed"


async def test_every_attempt_of_a_call_counts(client: Client) -> None:
    tool = flaky(down, max_attempts=5, initial_interval_s=0.01)
    async with a_shared_worker(client, [call_of(1), answers()], tool) as (loop, provider, _):
        await loop.run()
    assert (len(tool.contexts), LEFT_ALONE in last(provider).text) == (3, True)


async def test_a_local_tool_has_a_circuit_too(client: Client) -> None:
    tool = flaky(down, execution="local")
    steps = [call_of(1), call_of(2), call_of(3), call_of(4), answers()]
    async with a_shared_worker(client, steps, tool) as (loop, provider, _):
        await loop.run()
    assert (len(tool.contexts), LEFT_ALONE in last(provider).text) == (3, True)


@pytest.mark.parametrize(
    ("error", "options"),
    [
        pytest.param(ToolError("no such page"), {}, id="the call's own fault"),
        pytest.param(
            ToolError("odd", kind="Odd", retryable=True), {"non_retryable": ("Odd",)}, id="final by its options"
        ),
        pytest.param(
            ConnectionError("no route"), {"breaker": BreakerOptions(scope="worker", enabled=False)}, id="disabled"
        ),
        pytest.param(ConnectionError("no route"), {"breaker": BreakerOptions(scope="run")}, id="kept by the run"),
    ],
)
async def test_some_failures_leave_the_circuit_of_the_worker_closed(
    client: Client, error: Exception, options: dict[str, Any]
) -> None:
    def fails(arguments: dict[str, Any], context: ToolContext) -> str:
        raise error

    tool = flaky(fails, **options)
    steps = [call_of(1), call_of(2), call_of(3), answers()]
    async with a_shared_worker(client, steps, tool) as (loop, _, breakers):
        await loop.run()
    assert (len(tool.contexts), breakers.circuit("flaky").failures) == (3, 0)


async def test_a_timeout_opens_the_circuit(client: Client) -> None:
    hold, once = Hold(), BreakerOptions(scope="worker", failure_threshold=1)
    tool = flaky(lambda arguments, context: hold.then("late"), timeout_s=3, breaker=once)
    async with a_shared_worker(client, [call_of(1), answers()], tool) as (loop, provider, breakers):
        await loop.run()
        assert "longer than its 3 s" in last(provider).text
        await wait_for_event(hold.cancelled)

        async def is_open() -> bool:
            return breakers.circuit("flaky").state == "open"

        await wait_until(is_open)


async def test_an_abort_releases_the_trial(client: Client) -> None:
    clock, hold, once = Clock(), Hold(), BreakerOptions(scope="worker", failure_threshold=1)
    tool = flaky(down, breaker=once)
    async with a_shared_worker(client, [call_of(1), answers(), call_of(2)], tool, clock=clock) as (loop, _, breakers):
        await loop.run()
        clock.seconds = 60
        tool.body = lambda arguments, context: hold.then("late")
        handle = await loop.start()
        await hold.reached()
        assert breakers.circuit("flaky").trying == 1
        await handle.signal("abort", "enough")
        assert (await loop.ended(handle)).result.termination.reason == "aborted"
        after = breakers.circuit("flaky")
        assert (after.state, after.trying, after.failures) == ("half_open", 0, 1)


def server_error() -> ModelError:
    return ModelError("ServerError", "acme: 500", retryable=True, retry_after_s=0.01)


async def test_a_model_call_waits_until_its_provider_may_be_tried(client: Client) -> None:
    """Three attempts fail. The fourth is rejected and repeated when the circuit is half open."""
    steps = [server_error(), server_error(), server_error(), answers("well again")]
    often = CircuitOptions(recovery_s=2)
    async with a_shared_worker(client, steps, clock=monotonic_time, model_breaker=often) as (loop, provider, breakers):
        began = asyncio.get_running_loop().time()
        ran = await loop.run()
    assert (ran.result.output, len(provider.seen)) == ("well again", 4)
    assert asyncio.get_running_loop().time() - began >= 2
    assert breakers.circuit("provider:scripted").state == "closed"
    attempts = [
        event.activity_task_started_event_attributes.attempt
        for event in ran.history.events
        if event.HasField("activity_task_started_event_attributes")
    ]
    assert max(attempts) == 5


async def test_runs_share_the_circuit_of_a_provider(client: Client) -> None:
    """The second run has too little time to wait. It ends with the reason, and the provider is not called."""
    steps = [server_error(), server_error(), server_error(), answers()]
    async with a_shared_worker(client, steps) as (loop, provider, _):
        for _ in range(2):
            ran = await loop.run(timeout_s=8)
            assert ran.result.termination.reason == "error"
            assert "provider:scripted is left alone for 60 s more" in ran.result.termination.detail
            assert len(provider.seen) == 3
