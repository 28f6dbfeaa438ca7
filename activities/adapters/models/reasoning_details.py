"""OpenRouter's `reasoning_details`, put together from their stream so that they can be sent back."""

from typing import Any

from activities.adapters.models.json_shape import as_text

_TEXTS = ("text", "summary")


class ReasoningDetails:
    """Details in order; the pieces of one (same type, same index, side by side) are joined."""

    def __init__(self) -> None:
        self._details: list[dict[str, Any]] = []

    def add(self, piece: dict[str, Any]) -> None:
        """Add a detail or a piece of the last one."""
        last = self._details[-1] if self._details else {}
        if not last or not any(key in piece for key in (*_TEXTS, "signature")) or _identity(last) != _identity(piece):
            self._details.append(dict(piece))
            return
        texts = {key: as_text(last.get(key)) + as_text(piece[key]) for key in _TEXTS if key in piece}
        last.update({key: value for key, value in piece.items() if value is not None} | texts)

    def whole(self) -> list[dict[str, Any]]:
        """Return the details."""
        return self._details


def _identity(detail: dict[str, Any]) -> tuple[object, object]:
    return detail.get("type"), detail.get("index")
