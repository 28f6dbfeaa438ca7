"""Puts a server's text into a line of ours, without hidden characters and without a note about them."""

import unicodedata

from orga.activities.text.characters import without_invisible, without_sequences
from orga.workflows.types.text import clean_text, clip

_SHAPELESS_CATEGORIES = frozenset({"Co", "Cn", "Zl", "Zp"})
"""Private and unassigned characters, and line separators, which must not end a line of ours."""

_EXAMINED_FACTOR = 4
"""Characters that are read for each kept byte, so that millions of them delay nobody."""


def is_plain_text(text: str) -> bool:
    """Return whether `text` hides nothing."""
    return (text.isascii() and text.isprintable()) or _visible_text(text) == text


def plain_line(text: str, max_bytes: int) -> str:
    """Return `text` without hidden characters, cut to `max_bytes`."""
    looked_at = text[: max_bytes * _EXAMINED_FACTOR]
    shown = _visible_text(looked_at).strip() + ("…" if len(text) > len(looked_at) else "")
    return clip(shown, max_bytes, "the server says more")


def _visible_text(text: str) -> str:
    shaped = "".join(c for c in clean_text(text) if unicodedata.category(c) not in _SHAPELESS_CATEGORIES)
    text, _ = without_sequences(shaped)
    text, _ = without_invisible(text)
    return text
