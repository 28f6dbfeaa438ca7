"""Metrics of real runs, as a collector receives them."""

from functools import partial

import pytest
from temporalio.client import Client

from orga.activities.models.conversations import Conversations
from orga.testing import FakeTool, answers, calls
from orga.workflows.types import telemetry_names as names
from orga.workflows.types.tool_calls.recovery import Recovery
from orga.workflows.types.tool_calls.tools import ToolOptions
from tests.support.runs.loop import Deny, a_loop
from tests.support.web.otlp_receiver import Receiver
from tests.support.web.telemetry import collector, connect_with_plugins, fresh_globals, start_telemetry

__all__ = ["collector", "fresh_globals"]

pytestmark = pytest.mark.usefixtures("fresh_globals")


def broken(arguments: object, context: object) -> str:
    raise RuntimeError("broken")


async def test_the_collector_receives_the_metrics_of_a_run(client: Client, collector: Receiver) -> None:
    on = start_telemetry(collector.url, export_interval_s=0.05)

    tools = FakeTool("look"), FakeTool("delete"), FakeTool("fails", broken, effect="irreversible")
    steps = [calls("look", "delete", "made_up", "fails"), answers()]
    async with a_loop(await connect_with_plugins(client, on), steps, *tools, engine=Deny("delete")) as loop:
        await loop.run()
    on.shutdown()

    chat = {names.OPERATION: "chat", names.PROVIDER: "scripted", names.REQUEST_MODEL: "scripted:model"}
    answered = {**chat, names.RESPONSE_MODEL: "scripted:model"}
    assert collector.metric(names.TOKEN_USAGE) == [
        ({**answered, names.TOKEN_TYPE: "input"}, 200),
        ({**answered, names.TOKEN_TYPE: "output"}, 20),
    ]
    assert [attributes for attributes, _ in collector.metric(names.MODEL_DURATION)] == [chat]
    assert [attributes for attributes, _ in collector.metric(names.TOOL_DURATION)] == [
        {names.TOOL: "look", names.OUTCOME: "ok"},
        {names.TOOL: "fails", names.OUTCOME: "failed", names.ERROR: "RuntimeError"},
    ]
    assert collector.metric(names.ITERATION_COUNT) == [({names.AGENT: "default"}, 2)]
    assert collector.metric(names.DENIAL_COUNT) == [({names.PROPOSAL: "tool_call", names.TOOL: "delete"}, 1)]
    assert collector.metric(names.INVALID_COUNT) == [({names.PROPOSAL: "tool_call"}, 1)]
    assert collector.metric(names.RUNS_STARTED) == [({}, 1)]
    assert collector.metric(names.RUN_COUNT) == [({names.ENDING: "completed"}, 1)]
    ended = {names.ENDING: "completed", names.AGENT: "default", names.REQUEST_MODEL: "model"}
    assert [attributes for attributes, _ in collector.metric(names.RUN_DURATION)] == [ended]
    assert [size > 1_000 for _, size in collector.metric(names.HISTORY_SIZE)] == [True]
    assert [events > 10 for _, events in collector.metric(names.HISTORY_EVENTS)] == [True]


async def test_costs_recoveries_and_rebuilt_contexts_are_counted(
    client: Client, collector: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("orga.client.workers.registrations.Conversations", partial(Conversations, max_bytes=100))
    on = start_telemetry(collector.url, export_interval_s=0.05)
    recovery = Recovery(strategy="fallback", alternatives=("look",), max_attempts=1)
    fails = FakeTool("fails", broken, effect="idempotent", options=ToolOptions(recovery=recovery))
    steps = [calls("fails", reply_cost_usd=0.25), answers(cost_usd=0.5)]
    async with a_loop(await connect_with_plugins(client, on), steps, FakeTool("look"), fails) as loop:
        await loop.run()
    on.shutdown()

    assert [value for _, value in collector.metric(names.COST)] == [0.75]
    assert collector.metric(names.RECOVERIES) == [({names.TOOL: "fails", names.STRATEGY: "fallback"}, 1)]
    assert [value for _, value in collector.metric(names.CACHE_MISSES)] == [2]
