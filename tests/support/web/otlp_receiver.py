"""A collector in this process: an OTLP/HTTP server that keeps and parses its requests."""

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from typing import Any

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric

from tests.support.web.serving import serving


@dataclass(frozen=True)
class ReceivedSpan:
    """A span as it was received."""

    name: str
    kind: int
    trace_id: str
    span_id: str
    parent_id: str
    start: int
    end: int
    is_error: bool
    events: int
    attributes: dict[str, Any]


@dataclass
class Receiver:
    """The requests that arrived, by path, with their contents."""

    url: str = ""
    bodies: list[tuple[str, bytes]] = field(default_factory=list[tuple[str, bytes]])

    def spans(self) -> list[ReceivedSpan]:
        """Return all spans, in order of their start."""
        requests = [ExportTraceServiceRequest.FromString(body) for path, body in self.bodies if path == "/v1/traces"]
        found = [s for r in requests for rs in r.resource_spans for ss in rs.scope_spans for s in ss.spans]
        spans = [
            ReceivedSpan(
                s.name,
                s.kind,
                s.trace_id.hex(),
                s.span_id.hex(),
                s.parent_span_id.hex(),
                s.start_time_unix_nano,
                s.end_time_unix_nano,
                s.status.code == s.status.STATUS_CODE_ERROR,
                len(s.events),
                _values(s.attributes),
            )
            for s in found
        ]
        return sorted(spans, key=lambda span: (span.start, -span.end))

    def named(self, name: str) -> list[ReceivedSpan]:
        """Return the spans of this name."""
        return [span for span in self.spans() if span.name == name]

    def tree(self) -> list[str]:
        """Return the spans' names, each indented below its parent, in order of their start."""
        spans = self.spans()
        known = {span.span_id for span in spans}
        lines: list[str] = []

        def add(span: ReceivedSpan, depth: int) -> None:
            lines.append("  " * depth + span.name)
            for child in spans:
                if child.parent_id == span.span_id:
                    add(child, depth + 1)

        for span in spans:
            if span.parent_id not in known:
                add(span, 0)
        return lines

    def metric(self, name: str) -> list[tuple[dict[str, Any], float]]:
        """Return the points of a metric's last export, each with its attributes: a sum, or a histogram's sum."""
        requests = [ExportMetricsServiceRequest.FromString(body) for path, body in self.bodies if path == "/v1/metrics"]
        found = [m for r in requests for rm in r.resource_metrics for sm in rm.scope_metrics for m in sm.metrics]
        return _points([metric for metric in found if metric.name == name][-1])

    def service(self) -> str:
        """Return the service name of the first trace export."""
        body = next(body for path, body in self.bodies if path == "/v1/traces")
        return _values(ExportTraceServiceRequest.FromString(body).resource_spans[0].resource.attributes)["service.name"]


def _points(metric: Metric) -> list[tuple[dict[str, Any], float]]:
    if metric.HasField("histogram"):
        return [(_values(point.attributes), point.sum) for point in metric.histogram.data_points]
    points = metric.gauge.data_points if metric.HasField("gauge") else metric.sum.data_points
    return [(_values(point.attributes), point.as_double or float(point.as_int)) for point in points]


def _values(attributes: Any) -> dict[str, Any]:
    pairs: list[KeyValue] = list(attributes)
    return {pair.key: _value(pair.value) for pair in pairs}


def _value(value: AnyValue) -> Any:
    kind = value.WhichOneof("value")
    if kind == "array_value":
        return [_value(item) for item in value.array_value.values]
    return getattr(value, kind or "string_value")


@contextmanager
def otlp_receiver() -> Generator[Receiver]:
    """Serve on a free port of the loopback."""
    receiver = Receiver()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            receiver.bodies.append((self.path, self.rfile.read(int(self.headers["content-length"]))))
            self.send_response(200)
            self.send_header("content-length", "0")
            self.end_headers()

    with serving(Handler) as port:
        receiver.url = f"http://127.0.0.1:{port}"
        yield receiver
