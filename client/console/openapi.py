"""The OpenAPI 3.1 document of the interface, generated from its routes, and JSON Schemas of our models."""

import ast
import inspect
import re
import sys
from collections.abc import Mapping, Sequence
from functools import cache
from http import HTTPStatus
from itertools import pairwise
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaMode, JsonSchemaValue, models_json_schema
from pydantic_core import core_schema

from orga.client.console.problems import MEDIA_TYPE
from orga.client.console.routes import API, ApiRoute

_PROBLEM: Mapping[str, Any] = {
    "type": "object",
    "properties": {
        "type": {"const": "about:blank"},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "detail": {"type": "string", "description": "What is wrong, and what to do."},
        "errors": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {"where": {"type": "string"}, "detail": {"type": "string"}},
                "required": ["where", "detail"],
            },
        },
    },
    "required": ["type", "title", "status", "detail"],
}

_ANY_ROUTE = (400, 401, 403, 422, 500, 502, 503)
"""Statuses of problems that every route may answer with."""
_WRITES = (413, 415, 429)  # more of them, for routes that write

_PLACE = "#/components/schemas/"

_CSRF_PARAMETER = {
    "name": "X-Orga-Console",
    "in": "header",
    "required": True,
    "description": "No page of another origin can send it.",
    "schema": {"const": "1"},
}


def openapi_document(routes: Sequence[ApiRoute[Any]], version: str) -> dict[str, Any]:
    schemas = _Schemas(routes)
    paths: dict[str, dict[str, Any]] = {}
    for route in routes:
        paths.setdefault(f"{API}{route.path}", {})[route.method.lower()] = _operation(route, schemas)
    return {
        "openapi": "3.1.0",
        "info": {"title": "orga console", "version": version},
        "security": [{"bearer": []}, {"cookie": []}],
        "paths": paths,
        "components": {
            "schemas": schemas.found | {"Problem": dict(_PROBLEM)},
            "securitySchemes": {
                "bearer": {"type": "http", "scheme": "bearer"},
                "cookie": {"type": "apiKey", "in": "cookie", "name": "orga-console-PORT"},
            },
        },
    }


class _Schemas:
    """The schemas of all models that the routes take and answer."""

    def __init__(self, routes: Sequence[ApiRoute[Any]]) -> None:
        inputs = {model for route in routes for model in (route.by_kind or {"": route.takes}).values()}
        answers = {route.answers for route in routes if isinstance(route.answers, type)}
        models: list[tuple[type[BaseModel], JsonSchemaMode]] = [(model, "validation") for model in inputs]
        models.extend((model, "serialization") for model in answers)
        self._references, shared = models_json_schema(
            models, ref_template=f"{_PLACE}{{model}}", schema_generator=_WithFieldTexts
        )
        self.found: dict[str, Any] = shared["$defs"]

    def input(self, model: type[BaseModel]) -> dict[str, Any]:
        """Return the schema itself, not a reference to it."""
        return self.found[self._references[model, "validation"]["$ref"].removeprefix(_PLACE)]

    def answer(self, model: type[BaseModel]) -> dict[str, Any]:
        return self._references[model, "serialization"]


def _operation(route: ApiRoute[Any], schemas: _Schemas) -> dict[str, Any]:
    parameters = [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string", "minLength": 1}}
        for name in re.findall(r"{(\w+)}", route.path)
    ]
    parameters += [
        {"name": name, "in": "header", "required": False, "description": text, "schema": {"type": "string"}}
        for name, text in route.headers.items()
    ]
    operation: dict[str, Any] = {
        "operationId": re.sub(r"\W+", "_", route.name).strip("_").lower(),
        "summary": route.summary,
        "description": f"Needs the role {route.role}.",
        "responses": _responses(route, schemas),
    }
    if route.method == "GET":
        parameters += _query_parameters(route, schemas)
    else:
        parameters.append(_CSRF_PARAMETER)
        operation["requestBody"] = {
            "required": True,
            "content": {"application/json": {"schema": _body(route, schemas)}},
        }
    return {**operation, "parameters": parameters}


def _query_parameters(route: ApiRoute[Any], schemas: _Schemas) -> list[dict[str, Any]]:
    schema = schemas.input(route.takes)
    required = schema.get("required", [])
    return [
        {
            "name": name,
            "in": "query",
            "required": name in required,
            **{key: value for key, value in each.items() if key == "description"},
            "schema": _without_null(each),
        }
        for name, each in schema.get("properties", {}).items()
    ]


def _without_null(schema: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of a parameter without null. A client leaves out such a parameter."""
    shown = {key: value for key, value in schema.items() if key not in {"anyOf", "description", "default"}}
    if schema.get("default") is not None:
        shown["default"] = schema["default"]
    choices = [each for each in schema.get("anyOf", ()) if each != {"type": "null"}]
    if len(choices) > 1:
        return {**shown, "anyOf": choices}
    return {**shown, **choices[0]} if choices else shown


def _body(route: ApiRoute[Any], schemas: _Schemas) -> dict[str, Any]:
    if route.by_kind is None:
        return schemas.input(route.takes)
    kinds: list[dict[str, Any]] = []
    for kind, model in route.by_kind.items():
        schema = schemas.input(model)
        kinds.append({**schema, "title": kind, "properties": {**schema["properties"], "kind": {"const": kind}}})
    return {"oneOf": kinds}


def _responses(route: ApiRoute[Any], schemas: _Schemas) -> dict[str, Any]:
    answer = schemas.answer(route.answers) if isinstance(route.answers, type) else route.answers
    answer = answer or {"type": "string"}
    statuses = {route.status, *route.more_statuses}
    good = {status: _response(status, route.media_type, answer) for status in statuses if status < 400}
    problems = {*_ANY_ROUTE, *(status for status in statuses if status >= 400)}
    if "{" in route.path:
        problems.add(404)
    if route.method != "GET":
        problems.update(_WRITES)
    bad = {status: _response(status, MEDIA_TYPE, {"$ref": f"{_PLACE}Problem"}) for status in problems}
    return {str(status): response for status, response in sorted({**good, **bad}.items())}


def _response(status: int, media_type: str, schema: Mapping[str, Any]) -> dict[str, Any]:
    return {"description": HTTPStatus(status).phrase, "content": {media_type: {"schema": schema}}}


@cache
def _field_texts(model: type[BaseModel]) -> dict[str, str]:
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
    """Return the bodies of a module's classes. `inspect.getsource` would parse the module again for each class."""
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
        for name, text in _field_texts(schema["cls"]).items():
            field = schema["cls"].model_fields.get(name)
            shown = found.get("properties", {}).get((field.alias if field else None) or name)
            if shown is not None:
                shown.setdefault("description", text)
        if self.mode == "validation" and "properties" in found:
            found.setdefault("additionalProperties", False)
        return found


def json_schema(model: type[BaseModel]) -> dict[str, Any]:
    """Return the JSON Schema of a model as input. It forbids unknown keys, as the interface does."""
    return model.model_json_schema(schema_generator=_WithFieldTexts)
