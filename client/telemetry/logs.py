"""Configures the logs of orga's processes: one line per record on stderr, as JSON or text, with the run of the record.

In text form, an exception follows on lines of its own that cannot be mistaken for records.
"""

import logging
import os
import re
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from io import StringIO
from typing import Any, TextIO

import structlog
from structlog.typing import EventDict, ExcInfo, Processor
from temporalio import activity, workflow

from orga.activities.text.secrets import REDACTED, KnownSecrets
from orga.workflows.types.text import escaped_line

_CREDENTIAL = re.compile(r"(?i)\b(?:bearer|basic)\s+[\w\-.~+/=]{8,}|(?<=://)[^/\s@\"]+(?=@)")
"""Tokens after "bearer" or "basic", and the part before "@" in a URL. They are hidden even if they are unknown."""


@dataclass(frozen=True)
class SecretMask:
    secrets: KnownSecrets

    def mask_line(self, line: str) -> str:
        return _CREDENTIAL.sub(REDACTED, self.secrets.redact(line))


TRACEBACK_PREFIX = "  | "
"""Prefix of each line of a traceback. No record begins with it."""

_MULTILINE_KEYS = ("stack", "exception")
"""Fields that the console renderer writes below the record."""

Hide = Callable[[str], str]
"""Removes secrets from a text. It is called before line breaks are escaped, because secrets may contain them."""

_json = structlog.processors.JSONRenderer(default=str, ensure_ascii=False)


def json_line(logger: Any, method: str, event: EventDict) -> str:
    """Return the record as one line of JSON. Invisible characters and unusual line ends are escaped."""
    return escaped_line(str(_json(logger, method, event)))


def text_processors(hide: Hide, *, colors: bool) -> list[Processor]:
    """Return the last processors of text logs. They show invisible characters, and a traceback with prefixed lines."""

    def with_visible_fields(logger: Any, method: str, event: EventDict) -> EventDict:
        fields: dict[str, Any] = {"event": str(event.pop("event", "")), **event}
        visible: dict[str, Any] = {}
        for key, value in fields.items():
            visible[escaped_line(key)] = value if key == "exc_info" else _visible_value(value, hide)
        return visible | {key: f"{TRACEBACK_PREFIX}{visible[key]}" for key in _MULTILINE_KEYS if key in visible}

    def write_traceback(stream: TextIO, exc_info: ExcInfo) -> None:
        text = StringIO()
        structlog.dev.plain_traceback(text, exc_info)  # a rich one shows the values of local variables
        for line in hide(text.getvalue().removeprefix("\n")).split("\n"):
            stream.write(f"\n{TRACEBACK_PREFIX}{escaped_line(line)}")

    return [with_visible_fields, structlog.dev.ConsoleRenderer(colors=colors, exception_formatter=write_traceback)]


def _visible_value(value: Any, hide: Hide) -> Any:
    """Return the value. If its text has secrets, line breaks or invisible characters, return the text without them."""
    text = value if isinstance(value, str) else repr(value)
    shown = escaped_line(hide(text))
    return value if shown == text else shown


_FIRST_KEYS = ("timestamp", "level", "logger", "message", "workflow_id", "run_id", "iteration")

_CHATTY_LOGGERS = ("httpx", "httpx2", "httpcore", "mcp", "urllib3")
"""Loggers whose INFO records contain whole addresses with queries, or ids of sessions."""


def configure_logs(json: bool, level: str | int = "INFO", secrets: Iterable[str] = ()) -> None:
    """Render all records of this process in the same way, from the standard library and from structlog.

    Secrets in environment variables are hidden. Those in `secrets` count as secrets whatever their names are.
    """
    handler = logging.StreamHandler(sys.stderr)
    mask = SecretMask(KnownSecrets.from_environment(os.environ, secrets))
    handler.setFormatter(_MaskingFormatter(_rendering_processors(json, mask), mask))
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(level)
    for name in _CHATTY_LOGGERS:
        logging.getLogger(name).setLevel(max(root.level, logging.WARNING))
    logging.captureWarnings(True)
    workflow.logger.workflow_info_on_message = False
    activity.logger.activity_info_on_message = False
    structlog.configure(
        processors=[structlog.stdlib.filter_by_level, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
    )


def _rendering_processors(json: bool, mask: SecretMask) -> list[Processor]:
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
        return [*common, structlog.processors.format_exc_info, rename, _order_keys, json_line]
    return [*common, *text_processors(mask.mask_line, colors=sys.stderr.isatty())]


class _MaskingFormatter(structlog.stdlib.ProcessorFormatter):
    def __init__(self, processors: list[Processor], mask: SecretMask) -> None:
        super().__init__(processors=processors)
        self._mask = mask

    def format(self, record: logging.LogRecord) -> str:
        return self._mask.mask_line(super().format(record))


def _with_run(logger: Any, method: str, event: EventDict) -> EventDict:
    return {**event, **_run_fields(event["_record"])}


def _run_fields(record: logging.LogRecord) -> dict[str, str | None]:
    """Return the ids of the record's run: from the SDK's loggers, else from the current activity or workflow."""
    for name, run_id_key in (("temporal_workflow", "run_id"), ("temporal_activity", "workflow_run_id")):
        details: Mapping[str, str] | None = getattr(record, name, None)
        if details:
            return {"workflow_id": details.get("workflow_id"), "run_id": details.get(run_id_key)}
    if activity.in_activity():
        info = activity.info()
        return {"workflow_id": info.workflow_id, "run_id": info.workflow_run_id}
    if workflow.in_workflow():
        return {"workflow_id": workflow.info().workflow_id, "run_id": workflow.info().run_id}
    return {}


def _order_keys(logger: Any, method: str, event: EventDict) -> EventDict:
    return {**{key: event[key] for key in _FIRST_KEYS if key in event}, **event}
