"""Telemetry as `[telemetry]` configures it, and the logs of the SDK's core. If telemetry is off, it is not loaded."""

import logging
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, nullcontext, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from temporalio import runtime

from orga.client.config.sections import TelemetryConfig

if TYPE_CHECKING:  # it imports the SDK's whole worker, which most commands do not need
    from temporalio.client import Client
    from temporalio.plugin import SimplePlugin

SHUTDOWN_S = 2.0


@dataclass(frozen=True)
class Telemetry:
    """The telemetry of a process."""

    plugins: "tuple[SimplePlugin, ...]" = ()
    """Plugins for `Client.connect`. Workers of the client inherit them. Passing them again would apply them twice."""
    close: Callable[[float], None] = lambda timeout_s: None
    watch: "Callable[[Client], AbstractAsyncContextManager[None]]" = lambda client: nullcontext()
    """A context that a worker keeps open while it runs: metrics of what waits for people."""

    def shutdown(self, timeout_s: float = SHUTDOWN_S) -> None:
        """Send what is left, in at most `timeout_s`. What no collector has taken by then is lost."""
        self.close(timeout_s)


def telemetry(config: TelemetryConfig) -> Telemetry:
    """Start the configured telemetry, before clients and workers. Raise TelemetryInUse if this process has one."""
    if not config.enabled:
        return Telemetry()
    from orga.client.telemetry.export import export_to, run_spans, waiting_metrics

    close = export_to(config)
    return Telemetry(run_spans(), close, waiting_metrics)


CORE_LEVEL, OTHER_LEVEL = "WARN", "ERROR"
"""The SDK's own levels."""

_RETRIES = "::temporalio_client::retry"
"""Suffix of the logger that reports each retry of a request to the server."""


def forward_core_logs(*, with_retries: bool = True) -> None:
    """Forward the core's logs in this process. Programs call this before they connect. An existing runtime is kept.

    Commands forward no retries: these would disturb their output, and they report themselves that the server is away.
    """
    logger = logging.getLogger("temporalio")
    if not with_retries:
        logger.addFilter(lambda record: not record.name.endswith(_RETRIES))
    levels = runtime.TelemetryFilter(core_level=CORE_LEVEL, other_level=OTHER_LEVEL)
    logs = runtime.LoggingConfig(levels, forwarding=runtime.LogForwardingConfig(logger))
    with suppress(RuntimeError):
        runtime.Runtime.set_default(runtime.Runtime(telemetry=runtime.TelemetryConfig(logging=logs)))
