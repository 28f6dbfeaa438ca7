"""Finished log lines that no text within them can forge: every record is one line, its traceback stands apart."""

from collections.abc import Callable
from io import StringIO
from typing import Any, TextIO

import structlog
from structlog.typing import EventDict, ExcInfo, Processor

from orga.workflows.types.text import as_line

BESIDE = "  | "
"""Before each line of a traceback: no record begins so."""

_ON_ITS_OWN_LINE = ("stack", "exception")
"""Fields that the console renderer writes below the record."""

Hide = Callable[[str], str]
"""Takes secrets out of a text; before its line breaks are escaped, since a secret may have some."""

_json = structlog.processors.JSONRenderer(default=str, ensure_ascii=False)


def json_line(logger: Any, method: str, event: EventDict) -> str:
    """Return the record as one line of JSON; what would not show, or ends a line for some, is escaped within it."""
    return as_line(str(_json(logger, method, event)))


def for_people(hide: Hide, *, colors: bool) -> list[Processor]:
    """Return the processors that make a record text."""

    def with_visible_fields(logger: Any, method: str, event: EventDict) -> EventDict:
        said: dict[str, Any] = {"event": str(event.pop("event", "")), **event}
        shown = {as_line(key): value if key == "exc_info" else _visible(value, hide) for key, value in said.items()}
        return shown | {key: f"{BESIDE}{shown[key]}" for key in _ON_ITS_OWN_LINE if key in shown}

    def write_traceback(stream: TextIO, exc_info: ExcInfo) -> None:
        text = StringIO()
        structlog.dev.plain_traceback(text, exc_info)  # a rich one shows the values of local variables
        for line in hide(text.getvalue().removeprefix("\n")).split("\n"):
            stream.write(f"\n{BESIDE}{as_line(line)}")

    return [with_visible_fields, structlog.dev.ConsoleRenderer(colors=colors, exception_formatter=write_traceback)]


def _visible(value: Any, hide: Hide) -> Any:
    """Return the value, as text where its own would break the line or not show."""
    text = value if isinstance(value, str) else repr(value)
    shown = as_line(hide(text))
    return value if shown == text else shown
