"""Any client can send a trace context, and it may be anything."""

import asyncio
import uuid
from collections.abc import Mapping
from typing import Any

import pytest
from opentelemetry import trace
from temporalio.api.common.v1 import Payload
from temporalio.client import (
    Client,
    Interceptor,
    OutboundInterceptor,
    QueryWorkflowInput,
    SignalWorkflowInput,
    StartWorkflowInput,
    StartWorkflowUpdateInput,
)
from temporalio.contrib.opentelemetry import OpenTelemetryPlugin, create_tracer_provider
from temporalio.worker import Worker

from orga import Agent, OrgaPlugin
from orga.client.config.sections import OrgaConfig
from orga.testing import FakeTool, ScriptedModel, answers, calls
from orga.workflows.types.status import AgentResult
from tests.support.runs.approvals import Asks, approval_argument, wait_for_held_calls
from tests.support.runs.loop import a_loop
from tests.support.runs.questions import send_update
from tests.support.web.otlp_receiver import Receiver
from tests.support.web.telemetry import collector, connect_with_plugins, fresh_globals, start_telemetry

__all__ = ["collector", "fresh_globals"]

pytestmark = pytest.mark.usefixtures("fresh_globals")


class _Sender(Interceptor):
    """Sends this payload as trace context with everything."""

    def __init__(self, payload: Payload) -> None:
        self._headers = {"_tracer-data": payload}

    def intercept_client(self, next: OutboundInterceptor) -> OutboundInterceptor:
        return _Outbound(next, self._headers)


class _Outbound(OutboundInterceptor):
    def __init__(self, next: OutboundInterceptor, headers: Mapping[str, Payload]) -> None:
        super().__init__(next)
        self._headers = headers

    async def start_workflow(self, input: StartWorkflowInput) -> Any:
        input.headers = self._headers
        return await super().start_workflow(input)

    async def signal_workflow(self, input: SignalWorkflowInput) -> None:
        input.headers = self._headers
        await super().signal_workflow(input)

    async def query_workflow(self, input: QueryWorkflowInput) -> Any:
        input.headers = self._headers
        return await super().query_workflow(input)

    async def start_workflow_update(self, input: StartWorkflowUpdateInput) -> Any:
        input.headers = self._headers
        return await super().start_workflow_update(input)


def _sender(client: Client, payload: Payload) -> Client:
    return Client(client.service_client, data_converter=client.data_converter, interceptors=[_Sender(payload)])


def _json(data: bytes) -> Payload:
    return Payload(metadata={"encoding": b"json/plain"}, data=data)


@pytest.mark.parametrize(
    "payload",
    [
        pytest.param(Payload(metadata={"encoding": b"binary/foreign"}, data=b"x"), id="an unknown encoding"),
        pytest.param(Payload(), id="no encoding"),
        pytest.param(_json(b"{"), id="no JSON"),
        pytest.param(_json(b"[" * 20_000), id="too deep"),
        pytest.param(_json(b"[1]"), id="a list"),
        pytest.param(_json(b'{"traceparent": 7}'), id="a number as context"),
        pytest.param(_json(b'{"baggage": ["a", {}]}'), id="a list as baggage"),
    ],
)
async def test_an_unreadable_trace_context_stops_no_run(client: Client, collector: Receiver, payload: Payload) -> None:
    on = start_telemetry(collector.url)
    steps, pay = [calls("pay"), answers("done")], FakeTool("pay")
    async with a_loop(await connect_with_plugins(client, on), steps, pay, engine=Asks()) as loop:
        loop.client = _sender(client, payload)
        handle = await loop.start()
        (held,) = await wait_for_held_calls(handle)
        await handle.signal("steer", "go on")
        await send_update(handle, "approve", approval_argument(held))
        ran = await loop.ended(handle)
    on.shutdown()

    assert ran.result.output == "done"
    assert len(pay.contexts) == 1
    assert collector.named("invoke_agent default")


async def test_a_large_trace_context_is_not_read(client: Client, collector: Receiver) -> None:
    """One task handles all signals that have arrived, and reading many large ones would take more than its 2 s."""
    on = start_telemetry(collector.url)
    large = _json(b'{"traceparent": "00-%s-%s-01", "baggage": "%s"}' % (b"ab" * 16, b"cd" * 8, b"x" * 20_000))
    async with a_loop(await connect_with_plugins(client, on), [answers("done")]) as loop:
        loop.client = _sender(client, large)
        await loop.run()
    on.shutdown()

    (root,) = collector.named("invoke_agent default")
    assert root.trace_id != "ab" * 16


@pytest.mark.parametrize("is_ours_first", [True, False])
async def test_an_unreadable_trace_context_stops_no_run_of_an_applications_worker(
    client: Client, is_ours_first: bool
) -> None:
    """The application gives the SDK's plugin to its client, and ours may be before or after it."""
    trace.set_tracer_provider(create_tracer_provider())
    ours = OrgaPlugin(
        config=OrgaConfig(), agents=[Agent("clerk", tools=[])], models={"own": ScriptedModel([answers("done")])}
    )
    plugins = [ours, OpenTelemetryPlugin()] if is_ours_first else [OpenTelemetryPlugin(), ours]
    traced = await Client.connect(client.service_client.config.target_host, plugins=plugins)
    queue = f"app-{uuid.uuid4()}"
    async with Worker(traced, task_queue=queue):
        handle = await _sender(traced, Payload()).start_workflow(
            "AgentWorkflow",
            {"task": "a task", "agent": "clerk", "model": "code:own"},
            id=f"run-{uuid.uuid4()}",
            task_queue=queue,
            result_type=AgentResult,
        )
        async with asyncio.timeout(30):
            assert (await handle.result()).output == "done"
