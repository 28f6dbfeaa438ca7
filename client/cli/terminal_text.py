"""Text of a model or a tool, made harmless for a terminal."""

import re
from collections.abc import Iterable
from itertools import chain

from orga.activities.sanitize_characters import SEQUENCE
from orga.workflows.types.text import one_line

_CONTROL = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ud800-\udfff]",
)
"""C0 but tab and newline, C1, what turns the writing direction or is invisible, halves of characters."""

INDENT = "  "
TAB = 4


def harmless(text: str) -> str:
    """Return `text` without anything that a terminal would act on; tabs and newlines stay."""
    return _CONTROL.sub("", SEQUENCE.sub("", text.replace("\r\n", "\n")))


def on_one_line(text: str, chars: int = 120) -> str:
    """Return words on one line of at most `chars` characters."""
    return one_line(text, chars)


def below(text: str) -> list[str]:
    """Return the lines of a longer text as they stand below the line that says whose it is."""
    return [f"{INDENT}{line}" for line in harmless(text).expandtabs(TAB).split("\n")]


def behind(head: str, text: str) -> list[str]:
    """Return a longer text with its first line behind `head`, the other ones below it."""
    first, *rest = harmless(text).expandtabs(TAB).split("\n")
    return [f"{head}{first}", *(f"{' ' * len(head)}{line}" for line in rest)]


def apart(blocks: Iterable[Iterable[str]]) -> list[str]:
    """Return the lines of all blocks, with an empty line between two."""
    return list(chain.from_iterable(("", *block) for block in blocks))[1:]
