"""Writes results and messages to the terminal. Characters that it would act on are escaped. Also formats texts."""

import json
import logging
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import chain
from math import ceil
from typing import TYPE_CHECKING, Any, Literal, TextIO

from orga.activities.text.characters import harmless_text
from orga.workflows.types.text import escaped_line, escaped_text, one_line

if TYPE_CHECKING:
    from orga.activities.adapters.problem import FileProblem

INDENT = "  "
_TAB_CELLS = 4


def terminal_line(text: str, chars: int = 120) -> str:
    """Return the text on one line, as `one_line` does. The default length suits a list or a log."""
    return one_line(text, chars)


def indented_lines(text: str) -> list[str]:
    return [f"{INDENT}{line}" for line in harmless_text(text).expandtabs(_TAB_CELLS).split("\n")]


def hanging_lines(head: str, text: str) -> list[str]:
    """Return the lines of a longer text. The first line follows `head`, and the others begin at the same column."""
    first, *rest = harmless_text(text).expandtabs(_TAB_CELLS).split("\n")
    return [f"{head}{first}", *(f"{' ' * len(head)}{line}" for line in rest)]


def separated_blocks(blocks: Iterable[Iterable[str]]) -> list[str]:
    """Return the lines of all blocks, with an empty line between two."""
    return list(chain.from_iterable(("", *block) for block in blocks))[1:]


def file_problem_lines(problem: "FileProblem") -> list[str]:
    """Return two lines: the problem with its file and line, and the remedy."""
    return [f"✗ {problem.place}: {problem.problem}", f"    → {problem.remedy}"]


def count_text(number: int, noun: str, plural: str = "") -> str:
    """Return the number with its noun. The plural is the noun with an `s` unless it is given."""
    return f"{number:,} {noun if number == 1 else plural or f'{noun}s'}"


_UNITS = (("d", 86_400), ("h", 3_600), ("min", 60))


def time_left(until: datetime, now: datetime) -> str:
    """Return `42 s`, `5 min`, `1 h 30 min`, `2 d 4 h`: the two largest units, rounded up to whole minutes."""
    seconds = max(ceil((until - now).total_seconds()), 0)
    if seconds < 60:
        return f"{seconds} s"
    rest, parts = ceil(seconds / 60) * 60, list[str]()
    for unit, length in _UNITS:
        count, rest = divmod(rest, length)
        if count or parts:  # a zero keeps its place, so `2 d 0 h 5 min` becomes `2 d`
            parts.append(f"{count} {unit}" if count else "")
    return " ".join(filter(None, parts[:2]))


def age(since: datetime, now: datetime) -> str:
    """Return `42 s`, `3 min`, `5 h`, `2 d`: the largest unit that fits, rounded down."""
    seconds = max(int((now - since).total_seconds()), 0)
    for unit, length in _UNITS:
        if seconds >= length:
            return f"{seconds // length} {unit}"
    return f"{seconds} s"


Tone = Literal["quiet", "plain", "call", "good", "bad", "person"]
"""`quiet` lines appear only in a journal, not in a live view. `person` marks interventions and questions for people."""


@dataclass(frozen=True)
class StyledLine:
    """One line. A screen escapes line ends within it."""

    text: str
    tone: Tone = "plain"


def write_result(*lines: str) -> None:
    """Write the command's result as lines. Line ends within them and invisible characters are escaped."""
    _write_to(sys.stdout, "\n".join(map(escaped_line, lines)))


def write_document(text: str) -> None:
    """Write a result that is a whole text: an answer, a tool's output, a file."""
    _write_to(sys.stdout, harmless_text(text))


def write_json(value: Any, *, indent: int | None = 2) -> None:
    """Write the result as JSON. Characters that a terminal would act on are escaped."""
    _write_to(sys.stdout, escaped_text(json.dumps(value, ensure_ascii=False, indent=indent)))


def write_note(*lines: str) -> None:
    """Write lines for the person at the terminal, unless `--quiet` is set."""
    if not is_quiet():
        _write_message(logging.INFO, lines)


def write_warning(*lines: str) -> None:
    """Write lines that the person at the terminal has to see, such as errors and questions."""
    _write_message(logging.WARNING, lines)


def _write_message(level: int, lines: Sequence[str]) -> None:
    if _messages.go_to_log:
        for line in lines:
            logging.getLogger("orga").log(level, "%s", line)
    elif lines:
        _write_to(sys.stderr, "\n".join(map(escaped_line, lines)))


@dataclass
class _Messages:
    is_quiet: bool = False
    go_to_log: bool = False


_messages = _Messages()


def set_quiet(*, quiet: bool, to_log: bool = False) -> None:
    """Switch notes off or on. With `to_log`, notes and warnings become log records."""
    _messages.is_quiet, _messages.go_to_log = quiet, to_log


def is_quiet() -> bool:
    """Return whether notes are left out."""
    return _messages.is_quiet


def _write_to(stream: TextIO, text: str) -> None:
    stream.write(text + "\n")
    stream.flush()
