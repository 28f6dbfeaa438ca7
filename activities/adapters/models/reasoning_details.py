"""OpenRouter's `reasoning_details`, put together from their stream so that they can be sent back."""

from typing import Any

from orga.activities.adapters.models.json_shape import as_text

_TEXTS = ("text", "summary")

MAX_CHARS = 1_000_000
"""Of all details, as many as a reply has room for; they go back whole or not at all."""


class ReasoningDetails:
    """Details in order; the pieces of one (same type, same index, side by side) are joined."""

    def __init__(self) -> None:
        self._details: list[dict[str, Any]] = []
        self._texts: dict[tuple[int, str], list[str]] = {}
        self._room = MAX_CHARS

    def add(self, piece: dict[str, Any]) -> dict[str, Any] | None:
        """Add a detail or a piece of the last one; return what has begun with it, which grows until all are closed."""
        self._room -= sum(len(value) for value in piece.values() if isinstance(value, str)) + 1
        if self._room < 0:
            return None
        last = self._details[-1] if self._details else {}
        is_new = (
            not last or not any(key in piece for key in (*_TEXTS, "signature")) or _identity(last) != _identity(piece)
        )
        if is_new:
            self._details.append(dict(piece))
        else:
            last.update({key: value for key, value in piece.items() if value is not None and key not in _TEXTS})
        for key in _TEXTS:
            if key in piece:
                self._texts.setdefault((len(self._details) - 1, key), []).append(as_text(piece[key]))
        return self._details[-1] if is_new else None

    def close(self) -> None:
        """Put the details' texts together; where there are too many, nothing is left of any."""
        for (index, key), pieces in self._texts.items():
            self._details[index][key] = "".join(pieces)
        for detail in self._details if self._room < 0 else ():
            detail.clear()


def _identity(detail: dict[str, Any]) -> tuple[object, object]:
    return detail.get("type"), detail.get("index")
