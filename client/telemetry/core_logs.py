"""Forwards the logs of the SDK's core to Python's logging, and so to stderr."""

import logging
from contextlib import suppress

from temporalio.runtime import LogForwardingConfig, LoggingConfig, Runtime, TelemetryConfig, TelemetryFilter

CORE_LEVEL, OTHER_LEVEL = "WARN", "ERROR"
"""As the SDK has it."""


_RETRIES = "::temporalio_client::retry"
"""How the name of a logger ends by which the core tells each time that it asks a server again."""


def _is_no_retry(record: logging.LogRecord) -> bool:
    return not record.name.endswith(_RETRIES)


def forward_core_logs(*, with_retries: bool = True) -> None:
    """Forward them in this process; for programs of ours, before they connect. One that has a runtime keeps it.

    Args:
        with_retries: Whether it tells each time that it asks a server again. A command does not: that would stand amid
            what it shows, and it says itself that the server is away.
    """
    logger = logging.getLogger("temporalio")
    if not with_retries:
        logger.addFilter(_is_no_retry)
    forwarding = LogForwardingConfig(logger)
    logs = LoggingConfig(TelemetryFilter(core_level=CORE_LEVEL, other_level=OTHER_LEVEL), forwarding=forwarding)
    with suppress(RuntimeError):
        Runtime.set_default(Runtime(telemetry=TelemetryConfig(logging=logs)))
