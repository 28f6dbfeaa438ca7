"""Telemetry as `[telemetry]` configures it. If it is off, nothing is loaded."""

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING

from orga.client.config.sections import TelemetryConfig

if TYPE_CHECKING:  # it imports the SDK's whole worker, which most commands do not need
    from temporalio.client import Client
    from temporalio.plugin import SimplePlugin

SHUTDOWN_S = 2.0


def _no_shutdown(timeout_s: float) -> None:
    """Do nothing."""


def _no_metrics(client: "Client") -> AbstractAsyncContextManager[None]:
    return nullcontext()


@dataclass(frozen=True)
class Telemetry:
    """The telemetry of a process."""

    plugins: "tuple[SimplePlugin, ...]" = ()
    """Plugins for `Client.connect`. Workers of the client inherit them. Passing them again would apply them twice."""
    close: Callable[[float], None] = _no_shutdown
    watch: "Callable[[Client], AbstractAsyncContextManager[None]]" = _no_metrics
    """A context that a worker keeps open while it runs: metrics of what waits for people."""

    def shutdown(self, timeout_s: float = SHUTDOWN_S) -> None:
        """Send what is left, in at most `timeout_s`. What no collector has taken by then is lost."""
        self.close(timeout_s)


def telemetry(config: TelemetryConfig) -> Telemetry:
    """Start the configured telemetry, before clients and workers. Raise TelemetryInUse if this process has one."""
    if not config.enabled:
        return Telemetry()
    from orga.client.telemetry.export import export_to
    from orga.client.telemetry.run_span import run_spans
    from orga.client.telemetry.waiting import waiting_metrics

    close = export_to(config)
    return Telemetry(run_spans(), close, waiting_metrics)
