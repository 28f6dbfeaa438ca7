"""OpenTelemetry's globals, which a process sets once, set back for each test."""

import logging
import threading
from collections.abc import Generator

import pytest
from opentelemetry import metrics, trace
from opentelemetry.metrics import _internal as metrics_internal
from opentelemetry.util._once import Once

from activities import instruments
from client.config import TelemetryConfig
from client.telemetry import silence
from client.telemetry.start import Telemetry, telemetry

BOUND_EARLY = (instruments,)
"""Its instruments follow each provider that is set, if they were made before the first."""


@pytest.fixture
def fresh_globals(monkeypatch: pytest.MonkeyPatch) -> Generator[None]:
    """Make OpenTelemetry as a new process has it; at the end, wait for exporters that were given up."""
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", None)
    monkeypatch.setattr(trace, "_TRACER_PROVIDER_SET_ONCE", Once())
    monkeypatch.setattr(metrics_internal, "_METER_PROVIDER", None)
    monkeypatch.setattr(metrics_internal, "_METER_PROVIDER_SET_ONCE", Once())
    for name in silence._EXPORTERS:
        monkeypatch.setattr(logging.getLogger(name), "filters", [])
    yield
    for thread in threading.enumerate():
        if thread.name.startswith("Otel"):
            thread.join(10)
    metrics_internal._PROXY_METER_PROVIDER.on_set_meter_provider(metrics.NoOpMeterProvider())


def started(endpoint: str, **fields: object) -> Telemetry:
    """Return telemetry that sends to `endpoint`."""
    return telemetry(TelemetryConfig.model_validate({"enabled": True, "endpoint": endpoint, **fields}))
