"""Suspected instructions: lines that talk to a model rather than to a reader. They are marked, never dropped."""

import re
from collections.abc import Iterator
from functools import lru_cache
from itertools import islice
from typing import Any

from orga.activities.sanitize_patterns import PATTERNS
from orga.workflows.types.text import compatible, compiled

_LOOK_ALIKE = str.maketrans(
    "абвгдеёзіїјкмнорсԁтухһѕԛԝαβεικνορτυχγ" + "0134578@$!|",
    "abbrdeeziijkmhopcdtyxhsqwabeiknoptuxy" + "oieastbasil",
)
_MAX_MEMORY = 256 * 1024 * 1024
MAX_FOUND = 500
"""Lines that are named, and matches that are looked at; who reads so many needs no more."""

_SPACED = re.compile(r"\b\w(?:[ ._*\-]\w){5,400}\b")
_SEPARATORS = re.compile(r"[ ._*\-]")


def suspected(text: str) -> dict[int, str]:
    """Return the numbers of the suspected lines, from 0, with their kinds; what runs on stands at its first line.

    Only lines that hold a part of some match are looked at one by one: that costs far more than the search for them.
    """
    lines = text.split("\n")
    found: dict[int, str] = {}
    for number in sorted(set(_touched(text))):
        if len(found) == MAX_FOUND:
            break
        line = lines[number]
        kind = _kind(line)
        if kind is None and number not in found and number + 1 < len(lines) and _kind(lines[number + 1]) is None:
            kind = _kind(f"{line}\n{lines[number + 1]}")
        if kind is not None:
            found[number] = kind
    return found


def _touched(text: str) -> Iterator[int]:
    """Yield the numbers of lines in which a match lies, and of each line before one.

    A view of a text has as many lines as the text.
    """
    for view in _views(text):
        number, at = 0, 0
        for match in islice(_any().finditer(view), MAX_FOUND):
            number, at = number + view.count("\n", at, match.start()), match.start()
            yield from range(max(number - 1, 0), number + match.group().count("\n") + 1)


def _kind(text: str) -> str | None:
    views = _views(text)
    if not any(_any().search(view) for view in views):
        return None
    return next(kind for kind in PATTERNS if any(_pattern(PATTERNS[kind]).search(view) for view in views))


def _views(text: str) -> tuple[str, ...]:
    """Return the text as it reads, and without disguises: look-alikes, digits for letters, spaced letters."""
    plain = compatible(text).casefold()
    bare = _SPACED.sub(lambda match: _SEPARATORS.sub("", match.group()), plain.translate(_LOOK_ALIKE))
    return (plain,) if bare == plain else (plain, bare)


def _any() -> Any:
    return _pattern("|".join(f"(?:{pattern})" for pattern in PATTERNS.values()))


@lru_cache(maxsize=len(PATTERNS) + 1)
def _pattern(pattern: str) -> Any:
    return compiled(pattern, never_capture=True, max_mem=_MAX_MEMORY)
