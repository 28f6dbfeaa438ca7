"""Exports telemetry over OTLP: spans and metrics of runs, and metrics of waiting runs.

Each segment of a run has a span, and all of them belong to one trace. The metrics of waiting runs come only from
visibility. If the collector takes nothing, one warning reports it.
"""

import asyncio
import logging
import re
import threading
import time
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, NoReturn

from opentelemetry import context, metrics, trace
from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.metrics import CallbackOptions, Observation, get_meter
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.util.types import AttributeValue
from temporalio import workflow
from temporalio.client import Client
from temporalio.contrib.opentelemetry import OpenTelemetryPlugin, ReplaySafeMeterProvider, create_tracer_provider
from temporalio.plugin import SimplePlugin
from temporalio.service import RPCError
from temporalio.worker import (
    ContinueAsNewInput,
    ExecuteWorkflowInput,
    Interceptor,
    WorkflowInboundInterceptor,
    WorkflowInterceptorClassInput,
    WorkflowOutboundInterceptor,
)

from orga.activities.instruments import count, record
from orga.client.config.sections import TelemetryConfig
from orga.client.runs.inbox import WAITING_RUNS_QUERY
from orga.client.server.server_errors import error_reason, is_unsupported
from orga.client.telemetry.trace_headers import TraceHeaders
from orga.workflows.phases.control.visibility import open_span
from orga.workflows.types import telemetry_names as names
from orga.workflows.types.names import WAITING, WAITING_SINCE
from orga.workflows.types.status import AgentResult

_EXPORTERS = tuple(f"opentelemetry.exporter.otlp.proto.http.{kind}_exporter" for kind in ("trace", "metric"))
_log = logging.getLogger(__name__)


class _FirstRecordFilter(logging.Filter):
    """Replaces all log records of the exporters by one warning."""

    def __init__(self, endpoint: str) -> None:
        super().__init__()
        self._endpoint = re.sub(r"//[^/@]*@", "//", endpoint)  # without a password
        self._has_warned = False

    def filter(self, record: logging.LogRecord) -> bool:
        if not self._has_warned:
            self._has_warned = True
            _log.warning("the collector at %s takes no telemetry: it is lost; runs continue", self._endpoint)
        return False


def silence_exporters(endpoint: str) -> None:
    """Silence the exporters of this process until it ends, including retries after a shutdown."""
    record_filter = _FirstRecordFilter(endpoint)
    for name in _EXPORTERS:
        logging.getLogger(name).addFilter(record_filter)


EXPORT_TIMEOUT_S = 5.0
"""Seconds for one export with its retries. New spans wait in a bounded queue meanwhile."""


class TelemetryInUse(RuntimeError):
    """The process already has a tracer provider, and it can have only one."""


def export_to(config: TelemetryConfig) -> Callable[[float], None]:
    """Set the global providers. Return a function that closes them within the given seconds.

    Raise TelemetryInUse if the process has a provider already.
    """
    if not isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider):
        raise TelemetryInUse("OpenTelemetry is already set up in this process: set [telemetry] enabled = false here")
    base = config.endpoint.rstrip("/")
    resource = Resource.create({"service.name": config.service_name})
    span_exporter = OTLPSpanExporter(endpoint=f"{base}/v1/traces", timeout=EXPORT_TIMEOUT_S)
    metric_exporter = OTLPMetricExporter(endpoint=f"{base}/v1/metrics", timeout=EXPORT_TIMEOUT_S)
    spans = create_tracer_provider(resource=resource, shutdown_on_exit=False)
    spans.add_span_processor(BatchSpanProcessor(span_exporter))
    reader = PeriodicExportingMetricReader(metric_exporter, export_interval_millis=config.export_interval_s * 1000)
    meters = MeterProvider([reader], resource=resource, shutdown_on_exit=False)
    trace.set_tracer_provider(spans)
    metrics.set_meter_provider(ReplaySafeMeterProvider(meters))
    silence_exporters(base)

    def close(timeout_s: float) -> None:
        if not _finish_within(timeout_s, spans.shutdown, meters.shutdown):
            span_exporter.shutdown()
            metric_exporter.shutdown()  # pyright: ignore[reportUnknownMemberType]

    return close


def _finish_within(timeout_s: float, *shutdowns: Callable[[], None]) -> bool:
    """Return whether all shutdowns ended in time. Late ones go on in daemon threads, which end with the process."""
    end = time.monotonic() + timeout_s
    threads = [threading.Thread(target=shutdown, daemon=True) for shutdown in shutdowns]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(max(0.0, end - time.monotonic()))
    return not any(thread.is_alive() for thread in threads)


def run_spans() -> tuple[SimplePlugin, ...]:
    """Return the plugins in order.

    The first drops unreadable headers. The SDK's plugin passes the trace context on in headers. The last opens spans.
    """
    return (
        SimplePlugin("orga.TraceHeaders", interceptors=[TraceHeaders()]),
        OpenTelemetryPlugin(),
        SimplePlugin("orga.RunSpans", interceptors=[_RunSpans()]),
    )


class _RunSpans(Interceptor):
    def workflow_interceptor_class(self, input: WorkflowInterceptorClassInput) -> type[WorkflowInboundInterceptor]:
        return _RunSpanInbound


class _RunSpanInbound(WorkflowInboundInterceptor):
    def init(self, outbound: WorkflowOutboundInterceptor) -> None:
        self._outbound = _RunSpanOutbound(outbound)
        super().init(self._outbound)

    async def execute_workflow(self, input: ExecuteWorkflowInput) -> Any:
        info = workflow.info()
        received = context.get_current()
        if info.continued_run_id is None:
            count(names.RUNS_STARTED)
        elif trace.get_current_span(received).get_span_context().is_valid:
            self._outbound.first_segment = received  # the segment before this one passed it on
        attributes = {names.OPERATION: "invoke_agent", names.CONVERSATION: info.workflow_id, names.RUN: info.run_id}
        with open_span("invoke_agent", attributes) as span:
            try:
                result = await super().execute_workflow(input)
            except Exception as error:
                if workflow.is_failure_exception(error):
                    count(names.RUN_COUNT, {names.ENDING: "failed"})
                raise
            if isinstance(result, AgentResult):
                _record_ending(span, result)
            _record_history()
            return result


class _RunSpanOutbound(WorkflowOutboundInterceptor):
    """Passes on the span of the run's first segment, so that the spans of all later segments are its children."""

    first_segment: Context | None = None

    def continue_as_new(self, input: ContinueAsNewInput) -> NoReturn:
        _record_history()
        token = context.attach(self.first_segment or context.get_current())
        try:
            super().continue_as_new(input)
        finally:
            context.detach(token)


def _record_ending(span: trace.Span, result: AgentResult) -> None:
    reason = result.termination.reason
    span.set_attribute(names.ENDING, reason)
    span.set_attribute(names.ITERATIONS, result.iterations)
    span.set_attribute(names.INPUT_TOKENS, result.usage.input_tokens)
    span.set_attribute(names.CACHED_TOKENS, result.usage.cached_input_tokens)
    span.set_attribute(names.OUTPUT_TOKENS, result.usage.output_tokens)
    span.set_attribute(names.DENIED, result.tool_calls.denied)
    count(names.RUN_COUNT, {names.ENDING: reason})
    of_span: Mapping[str, AttributeValue] = getattr(span, "attributes", None) or {}
    attributes: dict[str, AttributeValue] = {names.ENDING: reason}
    attributes |= {name: of_span[name] for name in (names.AGENT, names.REQUEST_MODEL) if name in of_span}
    if reason == "error":
        attributes[names.ERROR] = reason
    record(names.RUN_DURATION, result.duration_s, attributes)


def _record_history() -> None:
    info = workflow.info()
    record(names.HISTORY_SIZE, info.get_current_history_size())
    record(names.HISTORY_EVENTS, info.get_current_history_length())


_REFRESH_INTERVAL_S = 30.0

_MAX_RUNS = 10_000
"""Waiting runs that are counted. If there are more, the metrics show this number."""


@dataclass
class _WaitingRuns:
    runs: int = 0
    oldest: datetime | None = None

    def add(self, since: datetime | None) -> None:
        self.runs += 1
        if since is not None:
            self.oldest = min(self.oldest or since, since)

    def age_s(self, now: datetime) -> float:
        """Return how long the oldest run has waited. It is never negative, although the clocks may differ."""
        return max((now - self.oldest).total_seconds(), 0.0) if self.oldest else 0.0


class WaitingMetrics:
    """The gauges of waiting runs in one worker. They show the result of the last visibility query."""

    def __init__(self) -> None:
        self._by_kind: dict[str, _WaitingRuns] = {}
        meter = get_meter(names.SCOPE, schema_url=names.SCHEMA_URL)
        meter.create_observable_gauge(
            names.WAITING_RUNS, [self._runs], unit="{run}", description="Runs that wait for a person, by kind"
        )
        meter.create_observable_gauge(
            names.WAITING_AGE, [self._ages], unit="s", description="Time that the oldest of them has waited, by kind"
        )

    async def refresh(self, client: Client) -> None:
        """Query visibility. A kind without waiting runs keeps the value 0 if it had some before."""
        by_kind = {kind: _WaitingRuns() for kind in self._by_kind}
        async for run in client.list_workflows(WAITING_RUNS_QUERY, limit=_MAX_RUNS):
            kind = run.typed_search_attributes.get(WAITING) or ""
            by_kind.setdefault(kind, _WaitingRuns()).add(run.typed_search_attributes.get(WAITING_SINCE))
        self._by_kind = by_kind

    def _runs(self, options: CallbackOptions) -> Iterable[Observation]:
        return [Observation(waiting.runs, {names.WAIT_KIND: kind}) for kind, waiting in self._by_kind.items()]

    def _ages(self, options: CallbackOptions) -> Iterable[Observation]:
        now = datetime.now(UTC)
        return [Observation(waiting.age_s(now), {names.WAIT_KIND: kind}) for kind, waiting in self._by_kind.items()]


@asynccontextmanager
async def waiting_metrics(client: Client, *, every_s: float = _REFRESH_INTERVAL_S) -> AsyncGenerator[None]:
    """Keep the gauges up to date during the block. If the server does not answer, log a warning."""
    gauges = WaitingMetrics()

    async def watch() -> None:
        while True:
            try:
                await gauges.refresh(client)
            except RPCError as error:
                _log.warning("the server does not list the runs that wait for people: %s", error_reason(error))
                if is_unsupported(error):
                    return
            await asyncio.sleep(every_s)

    watching = asyncio.create_task(watch())
    try:
        yield
    finally:
        watching.cancel()
        with suppress(asyncio.CancelledError):
            await watching
