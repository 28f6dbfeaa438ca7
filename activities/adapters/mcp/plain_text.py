"""A server's words as plain text: what a person who reads them would not see is not in them."""

import unicodedata

from workflows.types.clipped import clip
from workflows.types.text import clean_text

_KEPT = frozenset("\n\t")
_HIDDEN_CATEGORIES = frozenset({"Cc", "Cf", "Co", "Cn", "Cs", "Zl", "Zp"})
"""Controls, formatting and direction marks, tags, private and unassigned characters."""

_VARIATIONS = (range(0xFE00, 0xFE10), range(0xE0100, 0xE01F0), range(0x180B, 0x1810))
"""Variation selectors: any bytes can be hidden behind a visible character with them."""


def is_plain(text: str) -> bool:
    """Return whether nothing is hidden in `text`."""
    return (text.isascii() and text.isprintable()) or not any(map(_is_hidden, text))


def plain(text: str, max_bytes: int) -> str:
    """Return `text` without hidden characters, cut."""
    seen = "".join(character for character in clean_text(text) if not _is_hidden(character))
    return clip(seen.strip(), max_bytes, "the server says more")


def _is_hidden(character: str) -> bool:
    if character in _KEPT:
        return False
    code = ord(character)
    return unicodedata.category(character) in _HIDDEN_CATEGORIES or any(code in each for each in _VARIATIONS)
