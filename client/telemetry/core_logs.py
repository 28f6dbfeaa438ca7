"""What the SDK's core has to say goes to the logs, and so to stderr: by itself it writes to stdout, amid a result."""

import logging
from contextlib import suppress

from temporalio.runtime import LogForwardingConfig, LoggingConfig, Runtime, TelemetryConfig, TelemetryFilter

CORE_LEVEL, OTHER_LEVEL = "WARN", "ERROR"
"""As the SDK has it."""


def forward_core_logs() -> None:
    """Forward them in this process; for programs of ours, before they connect. One that has a runtime keeps it."""
    forwarding = LogForwardingConfig(logging.getLogger("temporalio"))
    logs = LoggingConfig(TelemetryFilter(core_level=CORE_LEVEL, other_level=OTHER_LEVEL), forwarding=forwarding)
    with suppress(RuntimeError):
        Runtime.set_default(Runtime(telemetry=TelemetryConfig(logging=logs)))
