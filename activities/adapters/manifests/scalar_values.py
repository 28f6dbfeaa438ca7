"""Texts, numbers and durations: what is wrong with one is a ValueError that says what to write instead."""

import math
import re
import unicodedata

from orga.activities.adapters.manifests.argument import Argument
from orga.workflows.types.text import LinearPattern

_DURATION = re.compile(r"(?:(\d{1,9})h)?(?:(\d{1,9})m)?(?:(\d{1,9})s)?")
_LINES = "\n\t"
_BREAKS = "\u2028\u2029"


def text(value: str, argument: Argument) -> str:
    """Return a text without control characters; line breaks and tabs only where the manifest lets them through."""
    let_through = _LINES + _BREAKS if argument.multiline else ""
    for character in value:
        is_control = unicodedata.category(character) in {"Cc", "Cs"} or character in _BREAKS
        if is_control and character not in let_through:
            raise ValueError(f"the character U+{ord(character):04X} is refused; leave it out")
    return value


def whole(value: float) -> int:
    """Return an integer; JSON writes 2 as 2.0, too."""
    return int(value)


def finite(value: float) -> float:
    """Return a number that is one."""
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError("is no number")
    return value


def duration(value: str, argument: Argument) -> int:
    """Return the seconds."""
    found = _DURATION.fullmatch(value)
    hours, minutes, seconds = (int(part or 0) for part in found.groups()) if found else (0, 0, 0)
    total = hours * 3_600 + minutes * 60 + seconds
    if total <= 0:
        raise ValueError("is no duration; write 90s, 5m or 1h30m")
    if argument.min is not None and total < argument.min:
        raise ValueError(f"is shorter than {argument.min:g} s")
    if argument.max is not None and total > argument.max:
        raise ValueError(f"is longer than {argument.max:g} s")
    return total


def regex(value: str, argument: Argument) -> str:
    """Return a pattern that can be matched in linear time."""
    LinearPattern(text(value, argument))
    return value


def looks_like_a_flag(value: str) -> bool:
    """Whether a program, or one that tidies its arguments, could take the value for a flag.

    Blanks, invisible characters and marks before the dash do not count, and whatever folds to a dash is one: some
    systems map U+00AD or U+2212 to it (CVE-2024-4577).
    """
    for character in value:
        if _is_dash(character):
            return True
        if not (character.isspace() or unicodedata.category(character) in {"Cf", "Cc", "Mn", "Me"}):
            return False
    return False


def _is_dash(character: str) -> bool:
    folded = unicodedata.normalize("NFKC", character)
    return unicodedata.category(character) == "Pd" or character in "\u00ad\u2212\u02d7\u2043" or folded[:1] == "-"
