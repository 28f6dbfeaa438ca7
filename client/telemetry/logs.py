"""Logs of orga's processes: one line a record on stderr, JSON or for people, with the run that it belongs to.

For people an exception follows, on lines that no record begins like.
"""

import logging
import sys
from collections.abc import Iterable, Mapping
from typing import Any

import structlog
from structlog.typing import EventDict, Processor
from temporalio import activity, workflow

from orga.client.telemetry.log_lines import for_people, json_line
from orga.client.telemetry.log_secrets import SecretMask

_FIRST = ("timestamp", "level", "logger", "message", "workflow_id", "run_id", "iteration")

_CHATTY = ("httpx", "httpx2", "httpcore", "mcp", "urllib3")
"""Their INFO lines hold whole addresses, queries included, and ids of sessions."""


def configure_logs(json: bool, level: str | int = "INFO", secrets: Iterable[str] = ()) -> None:
    """Render all records of this process, the standard library's and structlog's, in one way.

    The values of the variables in `secrets` are hidden, too, whatever these are called.
    """
    handler = logging.StreamHandler(sys.stderr)
    mask = SecretMask.of_environment(also=secrets)
    handler.setFormatter(_Masked(_rendering(json, mask), mask))
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(level)
    for name in _CHATTY:
        logging.getLogger(name).setLevel(max(root.level, logging.WARNING))
    logging.captureWarnings(True)
    workflow.logger.workflow_info_on_message = False
    activity.logger.activity_info_on_message = False
    structlog.configure(
        processors=[structlog.stdlib.filter_by_level, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
    )


def _rendering(json: bool, mask: SecretMask) -> list[Processor]:
    common: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        _with_run,
        structlog.stdlib.ProcessorFormatter.remove_processors_meta,
    ]
    if json:
        rename = structlog.processors.EventRenamer("message")
        return [*common, structlog.processors.format_exc_info, rename, _ordered, json_line]
    return [*common, *for_people(mask.hidden, colors=sys.stderr.isatty())]


class _Masked(structlog.stdlib.ProcessorFormatter):
    """Hides the environment's secrets in the finished line, tracebacks included."""

    def __init__(self, processors: list[Processor], mask: SecretMask) -> None:
        super().__init__(processors=processors)
        self._mask = mask

    def format(self, record: logging.LogRecord) -> str:
        return self._mask.hidden(super().format(record))


def _with_run(logger: Any, method: str, event: EventDict) -> EventDict:
    workflow_id, run_id = _run_of(event["_record"])
    if workflow_id:
        event["workflow_id"], event["run_id"] = workflow_id, run_id
    return event


def _run_of(record: logging.LogRecord) -> tuple[str | None, str | None]:
    """Return the ids, from what the SDK's loggers attach, else from where the record was made."""
    for name, run_id in (("temporal_workflow", "run_id"), ("temporal_activity", "workflow_run_id")):
        details: Mapping[str, str] | None = getattr(record, name, None)
        if details:
            return details.get("workflow_id"), details.get(run_id)
    if activity.in_activity():
        info = activity.info()
        return info.workflow_id, info.workflow_run_id
    if workflow.in_workflow():
        return workflow.info().workflow_id, workflow.info().run_id
    return None, None


def _ordered(logger: Any, method: str, event: EventDict) -> EventDict:
    return {**{key: event[key] for key in _FIRST if key in event}, **event}
