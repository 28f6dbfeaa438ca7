"""JSON Schemas of our models, with the docstrings of their fields as descriptions."""

import ast
import inspect
import sys
from functools import cache
from itertools import pairwise
from typing import Any, Literal

from pydantic import BaseModel
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import core_schema


@cache
def field_texts(model: type[BaseModel]) -> dict[str, str]:
    """Return the docstring of each field, on one line. Fields without one are left out."""
    found: dict[str, str] = {}
    for kind in reversed(model.__mro__):
        if kind is BaseModel:
            continue
        for field, text in pairwise(_class_bodies(kind.__module__).get(kind.__name__, ())):
            if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name) and (line := _text_of(text)):
                found[field.target.id] = line
    return found


@cache
def _class_bodies(module: str) -> dict[str, list[ast.stmt]]:
    """Return the bodies of a module's classes. `inspect.getsource` of a class would parse the module for each one."""
    try:
        tree = ast.parse(inspect.getsource(sys.modules[module]))
    except (KeyError, OSError, TypeError):  # a module without source, such as a built-in one
        return {}
    return {node.name: node.body for node in tree.body if isinstance(node, ast.ClassDef)}


def _text_of(statement: ast.stmt) -> str:
    value = statement.value if isinstance(statement, ast.Expr) else None
    return " ".join(value.value.split()) if isinstance(value, ast.Constant) and isinstance(value.value, str) else ""


class _WithFieldTexts(GenerateJsonSchema):
    def model_schema(self, schema: core_schema.ModelSchema) -> JsonSchemaValue:
        found = super().model_schema(schema)
        for name, text in field_texts(schema["cls"]).items():
            field = schema["cls"].model_fields.get(name)
            shown = found.get("properties", {}).get((field.alias if field else None) or name)
            if shown is not None:
                shown.setdefault("description", text)
        return found


def json_schema(
    model: type[BaseModel],
    mode: Literal["validation", "serialization"] = "validation",
    references: str = "#/$defs/{model}",
) -> dict[str, Any]:
    """Return the JSON Schema of a model. Input models refuse unknown keys, as the interface does."""
    schema = model.model_json_schema(mode=mode, schema_generator=_WithFieldTexts, ref_template=references)
    for each in (schema, *schema.get("$defs", {}).values()):
        if mode == "validation" and each.get("type") == "object" and "properties" in each:
            each.setdefault("additionalProperties", False)
    return schema


def list_schema(item: type[BaseModel], **more: Any) -> dict[str, Any]:
    """Return the JSON Schema of a list with `items` and `next`."""
    properties = {
        "items": {"type": "array", "items": json_schema(item, "serialization")},
        "next": {"type": ["string", "null"]},
        **more,
    }
    return {"type": "object", "properties": properties, "required": list(properties)}
