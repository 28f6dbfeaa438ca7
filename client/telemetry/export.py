"""The global OpenTelemetry providers, exporting by OTLP over HTTP. If the collector is silent, they warn once.

The span of a run is the root of its one trace, through every continue-as-new.
"""

import logging
import re
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, NoReturn

from opentelemetry import context, metrics, trace
from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.util.types import AttributeValue
from temporalio import workflow
from temporalio.contrib.opentelemetry import OpenTelemetryPlugin, ReplaySafeMeterProvider, create_tracer_provider
from temporalio.plugin import SimplePlugin
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
from orga.workflows.phases.control.visibility import open_span
from orga.workflows.types import telemetry_names as names
from orga.workflows.types.status import AgentResult

_EXPORTERS = tuple(f"opentelemetry.exporter.otlp.proto.http.{kind}_exporter" for kind in ("trace", "metric"))
_log = logging.getLogger(__name__)


class _FirstRecordFilter(logging.Filter):
    def __init__(self, endpoint: str) -> None:
        super().__init__()
        self._endpoint = re.sub(r"//[^/@]*@", "//", endpoint)
        self._has_warned = False

    def filter(self, record: logging.LogRecord) -> bool:
        """Drop the record. The first one becomes a warning of our own."""
        if not self._has_warned:
            self._has_warned = True
            _log.warning("the collector at %s takes no telemetry: it is lost; runs continue", self._endpoint)
        return False


def warn_once(endpoint: str) -> None:
    """Silence the exporters of this process for good, including retries after a shutdown."""
    first = _FirstRecordFilter(endpoint)
    for name in _EXPORTERS:
        logging.getLogger(name).addFilter(first)


EXPORT_TIMEOUT_S = 5.0
"""Seconds for one export with its retries. New spans wait in a bounded queue meanwhile."""


class TelemetryInUse(RuntimeError):
    """The process already has a tracer provider, and it can have only one."""


def export_to(config: TelemetryConfig) -> Callable[[float], None]:
    """Set the global providers, and return what closes them within given seconds. Raise TelemetryInUse if set."""
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
    warn_once(base)

    def close(timeout_s: float) -> None:
        if not _finish_within(timeout_s, spans.shutdown, meters.shutdown):
            span_exporter.shutdown()
            metric_exporter.shutdown()  # pyright: ignore[reportUnknownMemberType]

    return close


def _finish_within(timeout_s: float, *flushes: Callable[[], None]) -> bool:
    """Return whether all ended in time. An exporter that keeps trying does so in a daemon thread."""
    end = time.monotonic() + timeout_s
    threads = [threading.Thread(target=flush, daemon=True) for flush in flushes]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(max(0.0, end - time.monotonic()))
    return not any(thread.is_alive() for thread in threads)


def run_spans() -> tuple[SimplePlugin, ...]:
    """Return the plugins in order: the SDK's carries the context in headers, and ours opens a span in it."""
    return (OpenTelemetryPlugin(), SimplePlugin("orga.RunSpans", interceptors=[_RunSpans()]))


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
        if info.continued_run_id and trace.get_current_span(received).get_span_context().is_valid:
            self._outbound.first_run = received
        if info.continued_run_id is None:
            count(names.RUNS_STARTED)
        about = {names.OPERATION: "invoke_agent", names.CONVERSATION: info.workflow_id, names.RUN: info.run_id}
        with open_span("invoke_agent", about) as span:
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
    """Passes on the first run's span, so that the spans of a chain's runs are siblings in it and not nested."""

    first_run: Context | None = None

    def continue_as_new(self, input: ContinueAsNewInput) -> NoReturn:
        _record_history()
        token = context.attach(self.first_run or context.get_current())
        try:
            super().continue_as_new(input)
        finally:
            context.detach(token)


def _record_ending(span: trace.Span, result: AgentResult) -> None:
    span.set_attribute(names.ENDING, result.termination.reason)
    span.set_attribute(names.ITERATIONS, result.iterations)
    span.set_attribute(names.INPUT_TOKENS, result.usage.input_tokens)
    span.set_attribute(names.CACHED_TOKENS, result.usage.cached_input_tokens)
    span.set_attribute(names.OUTPUT_TOKENS, result.usage.output_tokens)
    span.set_attribute(names.DENIED, result.tool_calls.denied)
    count(names.RUN_COUNT, {names.ENDING: result.termination.reason})
    known: Mapping[str, AttributeValue] = getattr(span, "attributes", None) or {}
    about = {name: known[name] for name in (names.AGENT, names.REQUEST_MODEL) if name in known}
    failed = {names.ERROR: result.termination.reason} if result.termination.reason == "error" else {}
    record(names.RUN_DURATION, result.duration_s, {names.ENDING: result.termination.reason, **about, **failed})


def _record_history() -> None:
    info = workflow.info()
    record(names.HISTORY_SIZE, info.get_current_history_size())
    record(names.HISTORY_EVENTS, info.get_current_history_length())
