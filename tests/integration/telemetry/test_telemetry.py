"""Telemetry of real runs, as a collector receives it."""

import logging
import time
import uuid

import pytest
from opentelemetry import trace
from temporalio import workflow
from temporalio.client import Client
from temporalio.worker import Replayer, Worker

from orga.activities.ports import ModelError
from orga.client.config.sections import TelemetryConfig
from orga.client.history.values import data_converter
from orga.client.runners.workflows import our_runner
from orga.client.telemetry.start import telemetry
from orga.testing import FakeTool, answers, calls
from orga.workflows.agent import AgentWorkflow
from orga.workflows.phases.control.visibility import phase_span
from orga.workflows.types import telemetry_names as names
from tests.support.runs.loop import WORKER_FACTS, Deny, a_loop
from tests.support.runs.questions import send_update, wait_for_question
from tests.support.web.otlp_receiver import Receiver, otlp_receiver
from tests.support.web.telemetry import collector, connect_with_plugins, fresh_globals, start_telemetry

__all__ = ["collector", "fresh_globals"]

pytestmark = pytest.mark.usefixtures("fresh_globals")

SECRET_TEXTS = ("the-task", "the-argument", "the-result", "the-answer")


@workflow.defn(name="Stumbling", sandboxed=False)
class Stumbling:
    """Fails its workflow task as many times as `stumbles` says."""

    stumbles = 0

    @workflow.run
    async def run(self) -> None:
        with phase_span("reason", 1):
            if Stumbling.stumbles:
                Stumbling.stumbles -= 1
                raise RuntimeError("a defect")


async def test_a_run_is_one_trace_with_a_span_for_each_phase_call_and_tool(client: Client, collector: Receiver) -> None:
    on = start_telemetry(collector.url, service_name="orga-test")
    tools = FakeTool("look", lambda arguments, context: "the-result"), FakeTool("delete")
    steps = [calls("look", "delete", arguments={"path": "the-argument"}), answers("the-answer")]
    async with a_loop(await connect_with_plugins(client, on), steps, *tools, engine=Deny("delete")) as loop:
        ran = await loop.run("the-task")
    on.shutdown()

    assert collector.tree() == [
        "invoke_agent default",
        "  reason",
        "    chat scripted:model",
        "  gate",
        "  act",
        "    execute_tool look",
        "  reason",
        "    chat scripted:model",
        "  gate",
    ]
    assert collector.service() == "orga-test"
    assert len({span.trace_id for span in collector.spans()}) == 1
    assert all(span.events == 0 and not span.is_error for span in collector.spans())
    run = collector.named("invoke_agent default")[0]
    assert run.attributes == {
        names.OPERATION: "invoke_agent",
        names.AGENT: "default",
        names.CONVERSATION: ran.handle.id,
        names.RUN: ran.handle.result_run_id,
        names.ENDING: "completed",
        names.ITERATIONS: 2,
        names.INPUT_TOKENS: 200,
        names.OUTPUT_TOKENS: 20,
        names.DENIED: 1,
        names.CACHED_TOKENS: 0,
        names.PROVIDER: "scripted",
        names.REQUEST_MODEL: "model",
    }
    assert [(g.attributes[names.ITERATION], g.attributes[names.DENIED]) for g in collector.named("gate")] == [
        (1, 1),
        (2, 0),
    ]
    assert collector.named("chat scripted:model")[0].attributes == {
        names.OPERATION: "chat",
        names.PROVIDER: "scripted",
        names.REQUEST_MODEL: "scripted:model",
        names.REQUEST_MAX_TOKENS: 16_384,
        names.FINISH_REASONS: ["tool_calls"],
        names.INPUT_TOKENS: 100,
        names.OUTPUT_TOKENS: 10,
        names.CACHED_TOKENS: 0,
        names.RESPONSE_MODEL: "scripted:model",
        names.AGENT: "default",
        names.CONVERSATION: ran.handle.id,
        names.ATTEMPT: 1,
    }
    assert collector.named("execute_tool look")[0].attributes == {
        names.OPERATION: "execute_tool",
        names.TOOL: "look",
        names.TOOL_CALL: "look_0",
        names.CONVERSATION: ran.handle.id,
        names.ATTEMPT: 1,
    }


async def test_no_text_of_the_conversation_is_exported(client: Client, collector: Receiver) -> None:
    on = start_telemetry(collector.url)
    failing = ModelError("ServerError", "the-answer of a provider", retryable=True)
    tool = FakeTool("look", lambda arguments, context: "the-result")
    steps = [failing, calls("look", arguments={"path": "the-argument"}), answers("the-answer")]
    async with a_loop(await connect_with_plugins(client, on), steps, tool) as loop:
        await loop.run("the-task")
    on.shutdown()

    sent = b"".join(body for _, body in collector.bodies)
    assert b"execute_tool look" in sent
    assert [text for text in SECRET_TEXTS if text.encode() in sent] == []


async def test_a_wait_for_a_person_is_a_span_with_an_age(client: Client, collector: Receiver) -> None:
    on = start_telemetry(collector.url, export_interval_s=0.05)
    async with a_loop(await connect_with_plugins(client, on), [calls("look"), answers()], FakeTool("look")) as loop:
        handle = await loop.start(max_iterations=1, on_exhausted="ask")
        await wait_for_question(handle)
        await send_update(handle, "extend_budget", {"max_iterations": 5})
        assert (await loop.ended(handle)).result.termination.reason == "completed"
    on.shutdown()

    (wait,) = collector.named("wait budget")
    assert wait.attributes == {names.WAIT_KIND: "budget"}
    assert wait.end > wait.start
    ((attributes, seconds),) = collector.metric(names.WAIT_DURATION)
    assert attributes == {names.WAIT_KIND: "budget"}
    assert 0 < seconds < 60
    assert {span.trace_id for span in collector.spans()} == {wait.trace_id}


async def test_a_failed_attempt_has_its_own_span(client: Client, collector: Receiver) -> None:
    on = start_telemetry(collector.url)
    overloaded = ModelError("Overloaded", "come back", retryable=True, retry_after_s=0)
    async with a_loop(await connect_with_plugins(client, on), [overloaded, answers()]) as loop:
        await loop.run()
    on.shutdown()

    attempts = collector.named("chat scripted:model")
    assert [(span.is_error, span.attributes.get(names.ERROR)) for span in attempts] == [
        (True, "Overloaded"),
        (False, None),
    ]
    assert [span.attributes[names.ATTEMPT] for span in attempts] == [1, 2]


async def test_a_failed_run_reports_why(client: Client, collector: Receiver) -> None:
    on = start_telemetry(collector.url)
    async with a_loop(await connect_with_plugins(client, on), [answers()]) as loop:
        handle = await loop.start({"task": "x", "agent": "nobody"})
        with pytest.raises(Exception, match="Workflow execution failed"):
            await handle.result()
    on.shutdown()

    run = collector.spans()[0]
    assert (run.name, run.is_error, run.attributes[names.ERROR]) == ("invoke_agent", True, "InvalidInput")
    assert collector.metric(names.RUN_COUNT) == [({names.ENDING: "failed"}, 1)]


async def test_a_failing_workflow_task_leaves_no_span(client: Client, collector: Receiver) -> None:
    """A defect fails the task again and again until the repair, and each span would be meaningless."""
    on = start_telemetry(collector.url)
    queue = f"test-{uuid.uuid4()}"
    Stumbling.stumbles = 1
    host = await connect_with_plugins(client, on)
    async with Worker(host, task_queue=queue, workflows=[Stumbling]):
        await host.execute_workflow("Stumbling", id=queue, task_queue=queue)
    on.shutdown()

    assert collector.tree() == ["invoke_agent", "  reason"]


@pytest.mark.parametrize(
    "cached", [pytest.param(1000, id="cached"), pytest.param(0, id="evicted after each workflow task")]
)
async def test_a_span_is_exported_once_however_often_its_workflow_is_replayed(
    client: Client, collector: Receiver, cached: int
) -> None:
    on = start_telemetry(collector.url)
    tool = FakeTool("look")
    host = await connect_with_plugins(client, on)
    async with a_loop(host, [calls("look"), answers()], tool, max_cached_workflows=cached) as loop:
        ran = await loop.run()
        await ran.handle.query("status")
        replayer = Replayer(
            workflows=[AgentWorkflow],
            data_converter=data_converter,
            unsandboxed_workflow_runner=our_runner(),
            plugins=on.plugins,
        )
        await replayer.replay_workflow(ran.history)
    on.shutdown()

    assert sorted(span.name for span in collector.spans()) == [
        "act",
        "chat scripted:model",
        "chat scripted:model",
        "execute_tool look",
        "gate",
        "gate",
        "invoke_agent default",
        "reason",
        "reason",
    ]
    assert collector.metric(names.RUN_COUNT) == [({names.ENDING: "completed"}, 1)]


async def test_segments_are_siblings_in_the_trace_of_the_first(client: Client, collector: Receiver) -> None:
    on = start_telemetry(collector.url)
    tool = FakeTool("look")
    setup = WORKER_FACTS.model_copy(update={"roll_over_events": 20})
    async with a_loop(
        await connect_with_plugins(client, on), [*[calls("look")] * 5, answers()], tool, setup=setup
    ) as loop:
        handle = await loop.start()
        await handle.result()
    on.shutdown()

    runs = collector.named("invoke_agent default")
    assert len(runs) > 2
    assert len({span.trace_id for span in collector.spans()}) == 1
    assert [run.parent_id for run in runs] == ["", *[runs[0].span_id] * (len(runs) - 1)]
    assert [run.attributes.get(names.ENDING) for run in runs] == [*[None] * (len(runs) - 1), "completed"]


async def test_a_run_joins_the_trace_of_its_starter(client: Client, collector: Receiver) -> None:
    on = start_telemetry(collector.url)
    async with a_loop(await connect_with_plugins(client, on), [answers()]) as loop:
        with trace.get_tracer("a caller").start_as_current_span("a caller"):
            await loop.run()
    on.shutdown()

    assert collector.tree()[:2] == ["a caller", "  invoke_agent default"]


async def test_telemetry_adds_no_event_to_a_history(client: Client, collector: Receiver) -> None:
    on = start_telemetry(collector.url)
    events: list[list[int]] = []
    for host in (client, await connect_with_plugins(client, on)):
        async with a_loop(host, [calls("look"), answers()], FakeTool("look")) as loop:
            ran = await loop.run()
        events.append([event.event_type for event in ran.history.events])
    on.shutdown()

    assert events[0] == events[1]


async def test_nothing_is_exported_if_telemetry_is_off(client: Client, collector: Receiver) -> None:
    off = telemetry(TelemetryConfig(enabled=False, endpoint=collector.url))
    async with a_loop(await connect_with_plugins(client, off), [calls("look"), answers()], FakeTool("look")) as loop:
        await loop.run()
    off.shutdown()

    assert off.plugins == ()
    assert isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider)
    assert collector.bodies == []


async def test_a_dead_collector_affects_no_run(client: Client, caplog: pytest.LogCaptureFixture) -> None:
    with otlp_receiver() as gone:
        pass
    on = start_telemetry(gone.url, export_interval_s=0.05)
    async with a_loop(await connect_with_plugins(client, on), [calls("look"), answers()], FakeTool("look")) as loop:
        ran = await loop.run()
    began = time.monotonic()
    on.shutdown(0.5)

    assert time.monotonic() - began < 5
    assert ran.result.termination.reason == "completed"
    assert [(r.levelno, r.getMessage()) for r in caplog.records if "collector" in r.getMessage()] == [
        (logging.WARNING, f"the collector at {gone.url} takes no telemetry: it is lost; runs continue")
    ]
    assert [r.name for r in caplog.records if r.name.startswith("opentelemetry")] == []
