"""A server's words in a line of ours: what a reader would not see is not in them, and no note precedes them."""

import unicodedata

from orga.activities.text.characters import without_invisible, without_sequences
from orga.workflows.types.text import clean_text, clip

_SHAPELESS_CATEGORIES = frozenset({"Co", "Cn", "Zl", "Zp"})
"""Private and unassigned characters; and line separators, which end a line in a result, but not in a line of ours."""

_EXAMINED_FACTOR = 4
"""Characters for each byte that is kept: whoever sends millions of them keeps nobody waiting."""


def is_plain_text(text: str) -> bool:
    """Return whether nothing is hidden in `text`."""
    return (text.isascii() and text.isprintable()) or _visible_text(text) == text


def plain_line(text: str, max_bytes: int) -> str:
    """Return `text` without hidden characters, cut."""
    looked_at = text[: max_bytes * _EXAMINED_FACTOR]
    shown = _visible_text(looked_at).strip() + ("…" if len(text) > len(looked_at) else "")
    return clip(shown, max_bytes, "the server says more")


def _visible_text(text: str) -> str:
    shaped = "".join(c for c in clean_text(text) if unicodedata.category(c) not in _SHAPELESS_CATEGORIES)
    text, _ = without_sequences(shaped)
    text, _ = without_invisible(text)
    return text
