"""What providers want of a JSON Schema: an object at its top; for strict enforcement a small vocabulary."""

from typing import Any, cast

_NOT_AT_THE_TOP = frozenset({"anyOf", "oneOf", "allOf", "not", "enum", "const", "$ref", "if"})
"""Refused there by OpenAI, Anthropic or both, beside `type: object` too."""

_STRICT = frozenset(
    {"type", "properties", "required", "additionalProperties", "items", "anyOf", "enum", "const"}
    | {"$ref", "$defs", "title", "description"}
)
"""Keywords that OpenAI's strict mode takes from all its models."""

_DATA = frozenset({"enum", "const", "default", "examples"})
"""Keywords that hold values, not schemas."""


def fits_as_root(schema: dict[str, Any]) -> bool:
    """Return whether a provider takes the schema as it is."""
    return schema.get("type") == "object" and not _NOT_AT_THE_TOP & schema.keys()


def as_root(schema: dict[str, Any], name: str) -> dict[str, Any]:
    """Return the schema, as the one property of an object where it can't be a root itself."""
    if fits_as_root(schema):
        return schema
    inner = moved(schema, f"#/properties/{name}")
    return {"type": "object", "properties": {name: inner}, "required": [name], "additionalProperties": False}


def moved(schema: Any, pointer: str) -> Any:
    """Return a schema that stands at `pointer` of another, its references to itself turned there."""
    if isinstance(schema, list):
        return [moved(item, pointer) for item in cast("list[Any]", schema)]
    if not isinstance(schema, dict):
        return schema
    found: dict[str, Any] = {}
    for key, value in cast("dict[str, Any]", schema).items():
        if key == "$ref" and isinstance(value, str):
            found[key] = pointer + value[1:] if value == "#" or value.startswith("#/") else value
        else:
            found[key] = value if key in _DATA else moved(value, pointer)
    return found


def is_strict(schema: Any) -> bool:
    """Return whether OpenAI's strict mode takes the schema: closed objects, all properties required, known keywords."""
    if not isinstance(schema, dict):
        return True
    known = cast("dict[str, Any]", schema)
    properties = cast("dict[str, Any]", known.get("properties", {}))
    if not known.keys() <= _STRICT:
        return False
    is_object = known.get("type") == "object" or "properties" in known
    is_closed = known.get("additionalProperties") is False and set(known.get("required", ())) == set(properties)
    inner = [*properties.values(), *known.get("$defs", {}).values(), *known.get("anyOf", ()), known.get("items")]
    return (is_closed or not is_object) and all(is_strict(each) for each in inner)
