"""Rules of providers for definitions of tools, with the words of their refusals.

The rules are those of the providers' documentation and of public reports of refused requests.
"""

import re
from collections.abc import Iterator
from typing import Any, cast

from jsonschema import Draft202012Validator, SchemaError

from orga.workflows.types.json_text import as_object

_OPENAI_STRICT = frozenset(
    {"type", "properties", "required", "additionalProperties", "items", "anyOf", "enum", "const", "$ref", "$defs"}
    | {"title", "description", "format", "pattern", "minimum", "maximum", "multipleOf"}
)
_GEMINI = frozenset(
    {"type", "format", "title", "description", "nullable", "enum", "items", "properties", "required", "anyOf"}
    | {"minItems", "maxItems", "minimum", "maximum", "minLength", "maxLength", "pattern", "default", "example"}
    | {"propertyOrdering", "minProperties", "maxProperties", "additionalProperties", "$schema"}
)
_MAPS = ("properties", "$defs", "definitions", "patternProperties")


def openai_refusal(index: int, name: str, schema: dict[str, Any], strict: bool) -> str:
    """Return why OpenAI refuses a tool, or ""."""
    where = f"Invalid schema for function '{name}':"
    if not re.fullmatch(r"[a-zA-Z0-9_-]{1,64}", name):
        return f"Invalid 'tools[{index}].name': string does not match pattern '^[a-zA-Z0-9_-]+$'."
    if schema.get("type") != "object" or "properties" not in schema:
        return f"{where} schema must be a JSON Schema of 'type: \"object\"', got 'type: \"None\"'."
    if {"oneOf", "anyOf", "allOf", "enum", "not", "$ref"} & schema.keys():
        return f"{where} schema must have type 'object' and not have 'oneOf'/'anyOf'/'allOf'/'enum'/'not' at the top."
    for each in _schemas(schema):
        if each is None:
            return f"{where} True is not of type 'object', 'boolean'."
        if "$ref" in each and not _leads_to_schema(schema, each["$ref"]):
            return f"{where} reference can only point to definitions defined at the top level of the schema."
        kind: Any = each.get("type")
        if (kind == "array" or (isinstance(kind, list) and "array" in kind)) and "items" not in each:
            return f"{where} In context=('properties', 'x'), array schema missing items."
        if isinstance(kind, str) and kind not in _KINDS:
            return f"{where} '{kind}' is not valid under any of the given schemas."
        if strict and (more := each.keys() - _OPENAI_STRICT):
            return f"{where} In context=(), '{more.pop()}' is not permitted."
        if strict and not each.keys() & {"type", "$ref", "anyOf"}:
            return f"{where} In context=('properties', 'x'), schema must have a 'type' key."
        if strict and kind == "object":
            if each.get("additionalProperties") is not False:
                return f"{where} In context=(), 'additionalProperties' is required to be supplied and to be false."
            if set(each.get("required", ())) != set(each.get("properties", {})):
                return f"{where} In context=(), 'required' is required to include every key in properties."
        if strict and len(each.get("enum", ())) > 1_000:
            return f"{where} Enums may have at most 1000 values."
    return ""


def anthropic_refusal(index: int, name: str, schema: dict[str, Any]) -> str:
    """Return why Anthropic refuses a tool, or ""."""
    where = f"tools.{index}.custom"
    if not re.fullmatch(r"[a-zA-Z0-9_-]{1,64}", name):
        return f"{where}.name: String should match pattern '^[a-zA-Z0-9_-]{{1,64}}$'"
    if schema.get("type") != "object":
        return f"{where}.input_schema.type: Input should be 'object'"
    if {"oneOf", "anyOf", "allOf"} & schema.keys():
        return f"{where}.input_schema: input_schema does not support oneOf, allOf, or anyOf at the top level"
    for each in _schemas(schema):
        found = each or {}
        keys = found.get("properties", {})
        if "$ref" in found and not _leads_to_schema(schema, found["$ref"]):
            return f"{where}.input_schema: JSON schema is invalid. It must match JSON Schema draft 2020-12"
        if not all(re.fullmatch(r"[a-zA-Z0-9_.-]{1,64}", key) for key in keys):
            return f"{where}.input_schema.properties: Property keys should match pattern '^[a-zA-Z0-9_.-]{{1,64}}$'"
    try:
        Draft202012Validator.check_schema(schema)
    except SchemaError:
        return f"{where}.input_schema: JSON schema is invalid. It must match JSON Schema draft 2020-12"
    return ""


def gemini_refusal(index: int, name: str, schema: dict[str, Any]) -> str:
    """Return why Gemini's older schema dialect refuses a tool, or ""."""
    where = f"* GenerateContentRequest.tools[0].function_declarations[{index}].parameters"
    if not re.fullmatch(r"[a-zA-Z_][a-zA-Z0-9_.:-]{0,63}", name):
        return f"* GenerateContentRequest.tools[0].function_declarations[{index}].name: Invalid function name."
    for each in _schemas(schema):
        if each is None or isinstance(each.get("type"), list):
            return f"{where}.properties[x].type: Proto field is not repeating, cannot start list."
        if not isinstance(each.get("required", []), list) or (not each.get("type") and "anyOf" not in each):
            return f"{where}.properties[x].type: must be specified"
        if more := each.keys() - _GEMINI:
            return f"Invalid JSON payload received. Unknown name \"{more.pop()}\" at '{where}': Cannot find field."
        if each.get("type", "string") not in _KINDS:
            return f"{where}.properties[x].type: invalid value"
        if each.get("type") == "string" and each.get("format") not in {None, "enum", "date-time"}:
            return f"{where}.properties[x].format: only 'enum' and 'date-time' are supported for STRING type"
        if "enum" in each and (each.get("type") != "string" or "" in each["enum"]):
            return f"{where}.properties[x].enum: only allowed for STRING type"
        if each.get("type") == "array" and not each.get("items"):
            return f"{where}.properties[x].items: missing field."
        if not {*each.get("required", ())} <= {*each.get("properties", {})}:
            return f"{where}.required[0]: property is not defined"
    return ""


def _leads_to_schema(schema: Any, pointer: str) -> bool:
    for step in pointer.split("/")[1:]:
        schema = schema.get(step.replace("~1", "/").replace("~0", "~"))
        if schema is None:
            return False
    return pointer.startswith("#")


_KINDS = {"object", "string", "integer", "number", "boolean", "array", "null"}


def _schemas(schema: Any) -> Iterator[dict[str, Any] | None]:
    """Yield the schema and all schemas in it, and None for one that is no object."""
    if not isinstance(schema, dict):
        yield None
        return
    found = cast("dict[str, Any]", schema)
    yield found
    for key in _MAPS:
        for each in as_object(found.get(key)).values():
            yield from _schemas(each)
    for key in ("anyOf", "oneOf", "allOf", "prefixItems", "items", "not", "if", "then", "else"):
        inner = found.get(key)
        for each in cast("list[Any]", inner) if isinstance(inner, list) else [inner] if inner is not None else []:
            yield from _schemas(each)
