"""JSON Schemas of our models, with the docstrings of their fields as descriptions."""

import ast
import inspect
import sys
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from itertools import pairwise
from typing import Any, Generic, TypeVar, cast

from pydantic import BaseModel
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaMode, JsonSchemaValue, models_json_schema
from pydantic_core import core_schema

T = TypeVar("T")


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
        if self.mode == "validation" and "properties" in found:
            found.setdefault("additionalProperties", False)
        return found


def json_schema(model: type[BaseModel]) -> dict[str, Any]:
    """Return the JSON Schema of the input of a model. It refuses unknown keys, as the interface does."""
    return model.model_json_schema(schema_generator=_WithFieldTexts)


Model = type[BaseModel]


def shared_schemas(
    inputs: Iterable[Model], answers: Iterable[Model], references: str
) -> tuple[Mapping[tuple[Model, JsonSchemaMode], dict[str, Any]], dict[str, Any]]:
    """Return a reference to the schema of each model, and the schemas by their names."""
    models: list[tuple[Model, JsonSchemaMode]] = [(model, "validation") for model in inputs]
    models.extend((model, "serialization") for model in answers)
    found, shared = models_json_schema(models, ref_template=references, schema_generator=_WithFieldTexts)
    return cast("Mapping[tuple[Model, JsonSchemaMode], dict[str, Any]]", found), shared["$defs"]


class ListOf(BaseModel, Generic[T]):
    """A list, and the parameter `next` that reads on. It is null at the end."""

    items: Sequence[T]
    next: str | None
