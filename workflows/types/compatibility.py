"""Text in its compatibility form (NFKC), in time linear in its length whoever wrote it."""

from unicodedata import normalize

_PIECE = 200
"""Characters that are normalised at once: marks on one letter are sorted, in time quadratic in their number."""

_MAX_GROWTH = 4


def compatible(text: str) -> str:
    """Return the text piece by piece in NFKC; a piece that would grow to many times its length stays as it is."""
    return "".join(_compatible(text[at : at + _PIECE]) for at in range(0, len(text), _PIECE))


def _compatible(piece: str) -> str:
    normal = normalize("NFKC", piece)
    return normal if len(normal) <= len(piece) * _MAX_GROWTH else piece
