"""Spans of activities contain the kind of a failure and none of its text."""

import asyncio
from collections.abc import Generator

import pytest
from opentelemetry import baggage, context, trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from temporalio.exceptions import ApplicationError
from temporalio.testing import ActivityEnvironment

from orga.activities.instruments import model_span, tool_span
from orga.activities.ports import ModelError, ModelRequest
from orga.workflows.phases.control.visibility import phase_span
from orga.workflows.types import telemetry_names as names
from orga.workflows.types.messages import Reply
from orga.workflows.types.models.call_settings import ModelSettings
from orga.workflows.types.setup import Setup
from tests.support.model.providers import Network, a_request, chunk, provider, stream_response
from tests.support.web.telemetry import fresh_globals

__all__ = ["fresh_globals"]


@pytest.fixture
def finished(fresh_globals: None) -> Generator[InMemorySpanExporter]:
    exporter = InMemorySpanExporter()
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    trace.set_tracer_provider(provider)
    yield exporter
    provider.shutdown()


def only(exporter: InMemorySpanExporter) -> ReadableSpan:
    (span,) = exporter.get_finished_spans()
    return span


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        pytest.param(ModelError("Timeout", "private", retryable=True), "Timeout", id="kind of a model error"),
        pytest.param(ApplicationError("private", type="NotFound"), "NotFound", id="type of an application error"),
        pytest.param(ApplicationError("private"), "ApplicationError", id="application error without a type"),
        pytest.param(KeyError("private"), "KeyError", id="class of anything else"),
        pytest.param(asyncio.CancelledError(), "cancelled", id="cancellation"),
    ],
)
def test_a_failure_has_a_name_and_no_text(finished: InMemorySpanExporter, error: BaseException, kind: str) -> None:
    def fail() -> None:
        with tool_span("look", "look_0"):
            raise error

    with pytest.raises(type(error)):
        ActivityEnvironment().run(fail)

    span = only(finished)
    assert (span.attributes or {})[names.ERROR] == kind
    assert not span.status.is_ok
    assert (span.status.description, span.events) == (None, ())


def test_a_model_span_has_provider_and_model_separately(finished: InMemorySpanExporter) -> None:
    def ask() -> None:
        request = ModelRequest(model="vendor/m-1", settings=ModelSettings(temperature=None), max_output_tokens=7)
        with model_span(Setup(agent="a", model="openrouter:vendor/m-1"), request) as record_reply:
            record_reply(Reply(finish="length", model="m-1-2026"))

    ActivityEnvironment().run(ask)

    span = only(finished)
    attributes = span.attributes or {}
    assert (span.name, span.kind) == ("chat vendor/m-1", trace.SpanKind.CLIENT)
    assert attributes[names.PROVIDER] == "openrouter"
    assert attributes[names.REQUEST_MODEL] == "vendor/m-1"
    assert attributes[names.RESPONSE_MODEL] == "m-1-2026"
    assert attributes[names.FINISH_REASONS] == ("length",)
    assert names.REQUEST_TEMPERATURE not in attributes


def test_without_the_span_of_a_run_a_phase_has_no_span(finished: InMemorySpanExporter) -> None:
    """A tracer provider of the host is not safe under replay, and orga's opens the span of the run first."""
    with phase_span("reason", 1):
        pass
    assert finished.get_finished_spans() == ()


async def test_a_provider_gets_the_trace_id_and_no_baggage(finished: InMemorySpanExporter) -> None:
    network = Network([stream_response(chunk("stop", content="hi"))])
    model = provider("openai", network)
    token = context.attach(baggage.set_baggage("customer", "secret"))

    async def ask() -> None:
        with model_span(Setup(agent="a", model="openai:m"), ModelRequest(model="m")) as record_reply:
            record_reply(await model.complete(a_request(), lambda text: None))

    try:
        await ActivityEnvironment().run(ask)
    finally:
        context.detach(token)
        await model.close()

    span, headers = only(finished), network.requests[0].headers
    assert span.context is not None
    assert headers["traceparent"].split("-")[1:3] == [f"{span.context.trace_id:032x}", f"{span.context.span_id:016x}"]
    assert "secret" not in str(headers)
    attributes = span.attributes or {}
    assert (attributes[names.SERVER_ADDRESS], attributes[names.SERVER_PORT]) == ("models.test", 443)
    assert attributes[names.RESPONSE_MODEL] == "m"
    assert span.instrumentation_scope is not None
    assert span.instrumentation_scope.schema_url == names.SCHEMA_URL


async def test_without_telemetry_a_provider_gets_no_trace_id() -> None:
    network = Network([stream_response(chunk("stop", content="hi"))])
    model = provider("openai", network)
    await model.complete(a_request(), lambda text: None)
    await model.close()
    assert "traceparent" not in network.requests[0].headers
