"""A model call in the trace of its run: the span says where it goes, and the provider hears of the trace."""

from urllib.parse import urlsplit

from opentelemetry.trace import get_current_span
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from orga.workflows.types import telemetry_names as names

_DEFAULT_PORTS = {"https": 443, "http": 80}


def request_trace(url: str) -> dict[str, str]:
    """Note the server of the current span and return the headers that carry it on; none where there is no telemetry.

    Only the ids of trace and span go out, no baggage: who set that did not mean it for a model provider.
    """
    span = get_current_span()
    if not span.is_recording():
        return {}
    parts = urlsplit(url)
    span.set_attribute(names.SERVER_ADDRESS, parts.hostname or "")
    span.set_attribute(names.SERVER_PORT, parts.port or _DEFAULT_PORTS.get(parts.scheme, 0))
    headers: dict[str, str] = {}
    TraceContextTextMapPropagator().inject(headers)
    return headers
