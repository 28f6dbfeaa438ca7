"""A schema with an end to everything: a small model may never close a string or a list by itself."""

from typing import Any, cast

STRING_LIMIT = 200
"""Characters of one string."""
LIST_LIMIT = 10

_DATA = frozenset({"enum", "const", "default", "examples"})
_CLOSED = frozenset({"enum", "const", "pattern", "format", "maxLength"})


def bounded(schema: Any) -> Any:
    """Return the schema with limits where it has none; whatever fits them fits the schema."""
    if isinstance(schema, list):
        return [bounded(item) for item in cast("list[Any]", schema)]
    if not isinstance(schema, dict):
        return schema
    known = cast("dict[str, Any]", schema)
    inner = {key: value if key in _DATA else bounded(value) for key, value in known.items()}
    kinds = known.get("type")
    if "string" in (kinds if isinstance(kinds, list) else [kinds]) and not _CLOSED & known.keys():
        return {**inner, "maxLength": max(STRING_LIMIT, int(known.get("minLength", 0)))}
    if known.get("type") == "array" and "maxItems" not in known:
        return {**inner, "maxItems": max(LIST_LIMIT, int(known.get("minItems", 0)))}
    return inner
