"""Suspected instructions: lines that talk to a model rather than to a reader. They are marked, never dropped."""

import re
from functools import lru_cache
from typing import Any
from unicodedata import normalize

from activities.sanitize_patterns import PATTERNS
from workflows.types.linear_pattern import compiled

_LOOK_ALIKE = str.maketrans(
    "абвгдеёзіїјкмнорсԁтухһѕԛԝαβεικνορτυχγ" + "0134578@$!|",
    "abbrdeeziijkmhopcdtyxhsqwabeiknoptuxy" + "oieastbasil",
)
_MAX_MEMORY = 256 * 1024 * 1024
_SPACED = re.compile(r"\b\w(?:[ ._*\-]\w){5,400}\b")
_SEPARATORS = re.compile(r"[ ._*\-]")


def suspected(text: str) -> dict[int, str]:
    """Return the numbers of the suspected lines, from 0, with their kinds; what runs on stands at its first line."""
    if not any(_any().search(view) for view in _views(text)):
        return {}
    lines = text.split("\n")
    found: dict[int, str] = {}
    for number, line in enumerate(lines):
        kind = _kind(line)
        if kind is None and number not in found and number + 1 < len(lines) and _kind(lines[number + 1]) is None:
            kind = _kind(f"{line}\n{lines[number + 1]}")
        if kind is not None:
            found[number] = kind
    return found


def _kind(text: str) -> str | None:
    views = _views(text)
    if not any(_any().search(view) for view in views):
        return None
    return next(kind for kind in PATTERNS if any(_pattern(PATTERNS[kind]).search(view) for view in views))


def _views(text: str) -> tuple[str, ...]:
    """Return the text as it reads, and without disguises: look-alikes, digits for letters, spaced letters."""
    plain = normalize("NFKC", text).casefold()
    bare = _SPACED.sub(lambda match: _SEPARATORS.sub("", match.group()), plain.translate(_LOOK_ALIKE))
    return (plain,) if bare == plain else (plain, bare)


def _any() -> Any:
    return _pattern("|".join(f"(?:{pattern})" for pattern in PATTERNS.values()))


@lru_cache(maxsize=len(PATTERNS) + 1)
def _pattern(pattern: str) -> Any:
    return compiled(pattern, never_capture=True, max_mem=_MAX_MEMORY)
