"""Makes text of models and tools safe for a terminal; formats counts, ages and output."""

import json
import logging
import re
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import chain
from math import ceil
from typing import Any, Literal, TextIO

from orga.activities.text.characters import TERMINAL_SEQUENCE
from orga.workflows.types.text import escaped_line, escaped_text, one_line

_CONTROL = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ud800-\udfff]",
)
"""C0 but tab and newline, C1, what turns the writing direction or is invisible, halves of characters."""

INDENT = "  "
TAB = 4


def harmless_text(text: str) -> str:
    """Return `text` without anything that a terminal would act on; tabs and newlines stay."""
    return _CONTROL.sub("", TERMINAL_SEQUENCE.sub("", text.replace("\r\n", "\n")))


def on_one_line(text: str, chars: int = 120) -> str:
    """Return words on one line of at most `chars` characters."""
    return one_line(text, chars)


def indented_lines(text: str) -> list[str]:
    """Return the lines of a longer text as they stand below the line that says whose it is."""
    return [f"{INDENT}{line}" for line in harmless_text(text).expandtabs(TAB).split("\n")]


def hanging_lines(head: str, text: str) -> list[str]:
    """Return a longer text with its first line behind `head`, the other ones below it."""
    first, *rest = harmless_text(text).expandtabs(TAB).split("\n")
    return [f"{head}{first}", *(f"{' ' * len(head)}{line}" for line in rest)]


def separated_blocks(blocks: Iterable[Iterable[str]]) -> list[str]:
    """Return the lines of all blocks, with an empty line between two."""
    return list(chain.from_iterable(("", *block) for block in blocks))[1:]


def count_text(number: int, noun: str, plural: str = "") -> str:
    """Return how many there are; the plural is the noun with an `s` unless it is given."""
    return f"{number:,} {noun if number == 1 else plural or f'{noun}s'}"


_UNITS = (("d", 86_400), ("h", 3_600), ("min", 60))


def time_left(until: datetime, now: datetime) -> str:
    """Return `42 s`, `5 min`, `1 h 30 min`, `2 d 4 h`: the two largest units, a begun minute counted whole."""
    seconds = max(ceil((until - now).total_seconds()), 0)
    if seconds < 60:
        return f"{seconds} s"
    rest, parts = -(-seconds // 60) * 60, list[str]()
    for unit, length in _UNITS:
        count, rest = divmod(rest, length)
        parts += [f"{count} {unit}"] if count else ["0"] if parts else []
    return " ".join(part for part in parts[:2] if part != "0")


def age(since: datetime, now: datetime) -> str:
    """Return `42 s`, `3 min`, `5 h`, `2 d`: whole units, the largest that fits."""
    seconds = max(int((now - since).total_seconds()), 0)
    for unit, length in _UNITS:
        if seconds >= length:
            return f"{seconds // length} {unit}"
    return f"{seconds} s"


Tone = Literal["quiet", "plain", "call", "good", "bad", "person"]
"""`quiet` is for the whole timeline only; `person` is what somebody sent into the run, or is asked by it."""


@dataclass(frozen=True)
class StyledLine:
    """One line; a screen writes what would end it as an escape."""

    text: str
    tone: Tone = "plain"


def write_result(*lines: str) -> None:
    """Write what the command was called for, in lines: what would end one, or not show, is written as an escape."""
    _write_to(sys.stdout, "\n".join(map(escaped_line, lines)))


def write_document(text: str) -> None:
    """Write a result that is a text by itself: an answer, a tool's output, a file."""
    _write_to(sys.stdout, harmless_text(text))


def write_json(value: Any, *, indent: int | None = 2) -> None:
    """Write the result as JSON; what a terminal would act on is escaped."""
    _write_to(sys.stdout, escaped_text(json.dumps(value, ensure_ascii=False, indent=indent)))


def write_note(*lines: str) -> None:
    """Write lines for the person at the terminal, who may have asked for quiet."""
    if not is_quiet():
        _write_message(logging.INFO, lines)


def write_warning(*lines: str) -> None:
    """Write lines that the person at the terminal has to see: what went wrong, what waits for somebody."""
    _write_message(logging.WARNING, lines)


def _write_message(level: int, lines: Sequence[str]) -> None:
    if _log_flag[0]:
        for line in lines:
            logging.getLogger("orga").log(level, "%s", line)
    else:
        _write_to(sys.stderr, "\n".join(map(escaped_line, lines)))


_quiet_flag = [False]
_log_flag = [False]


def set_quiet(*, quiet: bool, to_log: bool = False) -> None:
    """Leave notes out from now on, or write them again; as records of the log if it is configured."""
    _quiet_flag[0], _log_flag[0] = quiet, to_log


def is_quiet() -> bool:
    """Return whether notes are left out."""
    return _quiet_flag[0]


def _write_to(stream: TextIO, text: str) -> None:
    stream.write(text + "\n")
    stream.flush()
