"""Two streams: the result alone on stdout, everything else on stderr. A line is one line, whatever is in it."""

import json
import logging
import sys
from collections.abc import Sequence
from typing import Any, TextIO

from orga.client.cli.terminal_text import harmless
from orga.workflows.types.text import as_line, escaped


def result(*lines: str) -> None:
    """Write what the command was called for, in lines: what would end one, or not show, is written as an escape."""
    _written(sys.stdout, "\n".join(map(as_line, lines)))


def document(text: str) -> None:
    """Write a result that is a text by itself: an answer, a tool's output, a file."""
    _written(sys.stdout, harmless(text))


def json_result(value: Any, *, indent: int | None = 2) -> None:
    """Write the result as JSON; what a terminal would act on is escaped."""
    _written(sys.stdout, escaped(json.dumps(value, ensure_ascii=False, indent=indent)))


def note(*lines: str) -> None:
    """Write lines for the person at the terminal, who may have asked for quiet."""
    if not is_hushed():
        _told(logging.INFO, lines)


def alarm(*lines: str) -> None:
    """Write lines that the person at the terminal has to see: what went wrong, what waits for somebody."""
    _told(logging.WARNING, lines)


def _told(level: int, lines: Sequence[str]) -> None:
    if _logged[0]:
        for line in lines:
            logging.getLogger("orga").log(level, "%s", line)
    else:
        _written(sys.stderr, "\n".join(map(as_line, lines)))


_hushed = [False]
_logged = [False]


def hush(*, quiet: bool, to_log: bool = False) -> None:
    """Leave notes out from now on, or write them again; as records of the log if it is configured."""
    _hushed[0], _logged[0] = quiet, to_log


def is_hushed() -> bool:
    """Return whether notes are left out."""
    return _hushed[0]


def _written(stream: TextIO, text: str) -> None:
    stream.write(text + "\n")
    stream.flush()
