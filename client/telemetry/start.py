"""Telemetry by `[telemetry]`: off, it is nothing; on, what a client is connected with, and how to end it."""

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING

from orga.client.config.sections import TelemetryConfig

if TYPE_CHECKING:  # it imports the SDK's whole worker, which most commands do without
    from temporalio.client import Client
    from temporalio.plugin import SimplePlugin

SHUTDOWN_S = 2.0


def _no_shutdown(timeout_s: float) -> None:
    """There is nothing to flush."""


def _no_metrics(client: "Client") -> AbstractAsyncContextManager[None]:
    return nullcontext()


@dataclass(frozen=True)
class Telemetry:
    """What a process has of it."""

    plugins: "tuple[SimplePlugin, ...]" = ()
    """For `Client.connect`; workers of that client take them over. A worker given them again would do all twice."""
    close: Callable[[float], None] = _no_shutdown
    watch: "Callable[[Client], AbstractAsyncContextManager[None]]" = _no_metrics
    """What a worker keeps open while it runs: metrics of what waits for people."""

    def shutdown(self, timeout_s: float = SHUTDOWN_S) -> None:
        """Send what is left, in at most `timeout_s`; what no collector took by then is lost."""
        self.close(timeout_s)


def telemetry(config: TelemetryConfig) -> Telemetry:
    """Start what the config asks for; once in a process, before clients and workers.

    Raises:
        TelemetryInUse: Something else has set OpenTelemetry up in this process.
    """
    if not config.enabled:
        return Telemetry()
    from orga.client.telemetry.export import export_to
    from orga.client.telemetry.run_span import run_spans
    from orga.client.telemetry.waiting import waiting_metrics

    close = export_to(config)
    return Telemetry(run_spans(), close, waiting_metrics)
