"""Starts the configured telemetry, and forwards the logs of the SDK's core. Unused telemetry loads no libraries."""

import logging
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, nullcontext, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from temporalio import runtime

from orga.client.config.sections import TelemetryConfig

if TYPE_CHECKING:  # `SimplePlugin` imports the SDK's whole worker, which most commands do not need
    from temporalio.client import Client
    from temporalio.plugin import SimplePlugin

SHUTDOWN_S = 2.0


@dataclass(frozen=True)
class Telemetry:
    """The telemetry of a process."""

    plugins: "tuple[SimplePlugin, ...]" = ()
    """Plugins for `Client.connect`. Its workers inherit them, so a worker that also gets them applies them twice."""
    _close: Callable[[float], None] = lambda timeout_s: None
    watch: "Callable[[Client], AbstractAsyncContextManager[None]]" = lambda client: nullcontext()
    """Returns a context that a worker keeps open while it runs. It reports the runs that wait for people."""

    def shutdown(self, timeout_s: float = SHUTDOWN_S) -> None:
        """Send the remaining spans and metrics within `timeout_s`. Those that no collector takes by then are lost."""
        self._close(timeout_s)


def telemetry(config: TelemetryConfig) -> Telemetry:
    """Start the configured telemetry. Call this before clients and workers. Raise TelemetryInUse if it has started."""
    if not config.enabled:
        return Telemetry()
    from orga.client.telemetry.export import export_to, run_spans, waiting_metrics

    close = export_to(config)
    return Telemetry(run_spans(), close, waiting_metrics)


CORE_LEVEL, OTHER_LEVEL = "WARN", "ERROR"
"""The SDK's default levels, for its core and for other libraries."""

_RETRIES = "::temporalio_client::retry"
"""Suffix of the logger that reports each retry of a request to the server."""


def forward_core_logs(*, with_retries: bool = True) -> None:
    """Send the logs of the SDK's core to Python's logs. Call this before connecting. An existing runtime is kept.

    Commands pass `with_retries=False`, because they report a lost server themselves.
    """
    logger = logging.getLogger("temporalio")
    if not with_retries:
        logger.addFilter(lambda record: not record.name.endswith(_RETRIES))
    levels = runtime.TelemetryFilter(core_level=CORE_LEVEL, other_level=OTHER_LEVEL)
    logs = runtime.LoggingConfig(levels, forwarding=runtime.LogForwardingConfig(logger))
    with suppress(RuntimeError):
        runtime.Runtime.set_default(runtime.Runtime(telemetry=runtime.TelemetryConfig(logging=logs)))
