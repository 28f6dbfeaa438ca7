"""Whether a run's `output_schema` can be had: from any model, and from this one."""

from typing import Any, cast

from pydantic_core import to_json

from orga.activities.adapters.models.settings import EMBEDDED_MODEL
from orga.activities.adapters.schemas.arguments import schema_problem

_STRING = frozenset({"type", "title", "description", "maxLength"})
_OBJECT = frozenset({"type", "title", "description", "properties", "required", "additionalProperties", "$schema"})


def schema_refusal(schema: dict[str, Any] | None, model: str) -> str:
    """Return why not, or "" when it can."""
    if schema is None:
        return ""
    if problem := schema_problem(schema):
        return f"cannot be used, {problem}"
    if model == EMBEDDED_MODEL and not can_fill(schema):
        return f"{EMBEDDED_MODEL} can fill a string or an object of one string only; choose another model"
    return ""


def can_fill(schema: dict[str, Any]) -> bool:
    """Return whether the schema is a string, or an object of one string, and demands no form of it."""
    return _string_in(schema) is not None


def filled(schema: dict[str, Any], text: str) -> str:
    """Return the JSON that holds `text`, cut to what the schema allows. Only for a schema that it can fill."""
    string = _string_in(schema) or {}
    cut = text[: int(string.get("maxLength", len(text)))]
    value: Any = cut if string is schema else dict.fromkeys(schema["properties"], cut)
    return to_json(value).decode()


def _string_in(schema: dict[str, Any]) -> dict[str, Any] | None:
    if schema.get("type") == "string":
        return schema if schema.keys() <= _STRING else None
    if schema.get("type") != "object" or not schema.keys() <= _OBJECT:
        return None
    properties = cast("dict[str, dict[str, Any]]", schema.get("properties", {}))
    if len(properties) != 1 or not set(schema.get("required", ())) <= properties.keys():
        return None
    (string,) = properties.values()
    return string if string.get("type") == "string" and string.keys() <= _STRING else None
