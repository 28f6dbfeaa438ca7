"""Telemetry started within a test. OpenTelemetry's globals, which a process sets only once, are restored."""

import logging
import threading
from collections.abc import Generator

import pytest
from opentelemetry import metrics, trace
from opentelemetry.metrics import _internal as metrics_internal
from opentelemetry.util._once import Once
from temporalio.client import Client

from orga.activities import instruments
from orga.client.config.sections import TelemetryConfig
from orga.client.history.values import data_converter
from orga.client.telemetry import export
from orga.client.telemetry.start import Telemetry, telemetry
from tests.support.web.otlp_receiver import Receiver, otlp_receiver

BOUND_EARLY = (instruments,)
"""Its instruments follow each new provider if they were made before the first one."""


@pytest.fixture
def fresh_globals(monkeypatch: pytest.MonkeyPatch) -> Generator[None]:
    """Reset OpenTelemetry as in a new process. At the end, wait for exporters that were given up."""
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", None)
    monkeypatch.setattr(trace, "_TRACER_PROVIDER_SET_ONCE", Once())
    monkeypatch.setattr(metrics_internal, "_METER_PROVIDER", None)
    monkeypatch.setattr(metrics_internal, "_METER_PROVIDER_SET_ONCE", Once())
    for name in export._EXPORTERS:
        monkeypatch.setattr(logging.getLogger(name), "filters", [])
    yield
    for thread in threading.enumerate():
        if thread.name.startswith("Otel"):
            thread.join(10)
    metrics_internal._PROXY_METER_PROVIDER.on_set_meter_provider(metrics.NoOpMeterProvider())


def start_telemetry(endpoint: str, **fields: object) -> Telemetry:
    """Return telemetry that sends to `endpoint`."""
    return telemetry(TelemetryConfig.model_validate({"enabled": True, "endpoint": endpoint, **fields}))


@pytest.fixture
def collector() -> Generator[Receiver]:
    """A collector that keeps its requests."""
    with otlp_receiver() as receiver:
        yield receiver


async def connect_with_plugins(client: Client, on: Telemetry) -> Client:
    """Return a client of the same server with the plugins."""
    return await Client.connect(
        client.service_client.config.target_host, data_converter=data_converter, plugins=on.plugins
    )
