"""The global OpenTelemetry providers, exporting by OTLP over HTTP. If the collector is silent, they warn once."""

import logging
import re
import threading
import time
from collections.abc import Callable

from opentelemetry import metrics, trace
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from temporalio.contrib.opentelemetry import ReplaySafeMeterProvider, create_tracer_provider

from orga.client.config.sections import TelemetryConfig

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
