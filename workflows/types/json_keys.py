"""JSON whose objects have each key once: of two that are alike, two readers may believe another one."""

import json
from typing import Any

_SHOWN_CHARS = 40
"""Of a key that stands there twice."""


def each_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return the object, as the `object_pairs_hook` of `json.loads`.

    Raises:
        ValueError: A key stands there twice.
    """
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise ValueError(f"the key {key[:_SHOWN_CHARS]!r} stands there twice")
        found[key] = value
    return found


def stand_once(text: str) -> bool:
    """Return whether the objects of a JSON text have each key once, however its letters are written."""
    try:
        json.loads(text, object_pairs_hook=each_once)
    except (ValueError, RecursionError):
        return False
    return True
