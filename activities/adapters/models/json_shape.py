"""Lenient reads of a provider's JSON: a value of an unexpected type counts as absent."""

from typing import Any, cast


def as_object(value: object) -> dict[str, Any]:
    """Return `value` if it is an object, or else an empty one."""
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def as_objects(value: object) -> list[dict[str, Any]]:
    items = cast("list[object]", value) if isinstance(value, list) else []
    return [cast("dict[str, Any]", item) for item in items if isinstance(item, dict)]


def as_text(value: object) -> str:
    """Return `value` if it is a string, or else an empty one."""
    return value if isinstance(value, str) else ""


def as_count(value: object) -> int:
    """Return `value` as a whole number of tokens, or 0 if it is no plausible count."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return 0
    return int(value) if 0 < value < 1e15 else 0
