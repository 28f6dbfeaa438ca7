"""The exporters: one set-up per process, one warning, and a shutdown in bounded time."""

import logging
import socket
import time

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider

from orga.client.telemetry.export import TelemetryInUse
from tests.support.web.otlp_receiver import otlp_receiver
from tests.support.web.telemetry import fresh_globals, start_telemetry

__all__ = ["fresh_globals"]

pytestmark = pytest.mark.usefixtures("fresh_globals")


def test_an_existing_provider_is_kept() -> None:
    foreign = TracerProvider(shutdown_on_exit=False)
    trace.set_tracer_provider(foreign)

    with pytest.raises(TelemetryInUse, match=r"\[telemetry\] enabled = false"):
        start_telemetry("http://127.0.0.1:1")
    assert trace.get_tracer_provider() is foreign


@pytest.mark.parametrize("slash", [pytest.param("", id="without slash"), pytest.param("/", id="with slash")])
def test_the_signals_go_to_their_paths_below_the_endpoint(slash: str) -> None:
    with otlp_receiver() as receiver:
        on = start_telemetry(f"{receiver.url}/tenant{slash}")
        trace.get_tracer("test").start_span("one").end()
        on.shutdown()
    assert [path for path, _ in receiver.bodies] == ["/tenant/v1/traces"]


def test_a_silent_collector_does_not_delay_the_shutdown(caplog: pytest.LogCaptureFixture) -> None:
    """It accepts the connection and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        on = start_telemetry(f"http://127.0.0.1:{silent.getsockname()[1]}")
        trace.get_tracer("test").start_span("one").end()
        began = time.monotonic()
        on.shutdown(0.3)
        assert time.monotonic() - began < 5


def test_credentials_of_the_endpoint_are_not_in_the_warning(caplog: pytest.LogCaptureFixture) -> None:
    with otlp_receiver() as gone:
        pass
    on = start_telemetry(gone.url.replace("//", "//user:hunter2@"))
    for name in ("one", "two"):
        trace.get_tracer("test").start_span(name).end()
    on.shutdown(0.3)

    ours = [
        record for record in caplog.records if record.name == "orga.client.telemetry.export"
    ]  # not an earlier test's
    assert [(r.levelno, r.getMessage()) for r in ours] == [
        (logging.WARNING, f"the collector at {gone.url} takes no telemetry: it is lost; runs continue")
    ]
    assert "hunter2" not in caplog.text


def test_a_second_shutdown_does_nothing() -> None:
    with otlp_receiver() as receiver:
        on = start_telemetry(receiver.url)
        on.shutdown()
        on.shutdown()
