"""Forwards the logs of the SDK's core to Python's logging, and so to stderr."""

import logging
from contextlib import suppress

from temporalio.runtime import LogForwardingConfig, LoggingConfig, Runtime, TelemetryConfig, TelemetryFilter

CORE_LEVEL, OTHER_LEVEL = "WARN", "ERROR"
"""The SDK's own levels."""


_RETRIES = "::temporalio_client::retry"
"""Suffix of the logger that reports each retry of a request to the server."""


def _is_no_retry(record: logging.LogRecord) -> bool:
    return not record.name.endswith(_RETRIES)


def forward_core_logs(*, with_retries: bool = True) -> None:
    """Forward the core's logs in this process. Programs call this before they connect. An existing runtime is kept.

    Args:
        with_retries: Also report each retry of a request. Commands do not: it would disturb their output, and they
            report themselves that the server is away.
    """
    logger = logging.getLogger("temporalio")
    if not with_retries:
        logger.addFilter(_is_no_retry)
    forwarding = LogForwardingConfig(logger)
    logs = LoggingConfig(TelemetryFilter(core_level=CORE_LEVEL, other_level=OTHER_LEVEL), forwarding=forwarding)
    with suppress(RuntimeError):
        Runtime.set_default(Runtime(telemetry=TelemetryConfig(logging=logs)))
