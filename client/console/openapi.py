"""The OpenAPI 3.1 document of the interface, generated from the declarations of its routes."""

import re
from collections.abc import Iterable, Mapping
from http import HTTPStatus
from typing import Any

from pydantic import BaseModel

from orga.client.console.problems import MEDIA_TYPE
from orga.client.console.routes import API, ApiRoute
from orga.client.console.schemas import json_schema

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
"""Statuses with a problem that every route may answer with."""
_WRITES = (413, 415, 429)

_CSRF_PARAMETER = {
    "name": "X-Orga-Console",
    "in": "header",
    "required": True,
    "description": "No page of another origin can send it.",
    "schema": {"const": "1"},
}


def openapi_document(routes: Iterable[ApiRoute[Any]], version: str) -> dict[str, Any]:
    """Return the document with all routes."""
    schemas = _Schemas()
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


_VALUES = frozenset({"default", "const", "enum"})
"""Keys of a schema whose values are no schemas."""


class _Schemas:
    """The named schemas of the document. Two that differ get different names."""

    def __init__(self) -> None:
        self.found: dict[str, Any] = {}
        self._sources: dict[str, Any] = {}
        """The schemas before their references were changed."""

    def of_model(self, model: type[BaseModel], *, is_input: bool) -> dict[str, Any]:
        return self.hoisted(json_schema(model, "validation" if is_input else "serialization"))

    def hoisted(self, schema: Any, names: Mapping[str, str] | None = None) -> Any:
        """Return a schema whose definitions are in the document, and whose references lead there."""
        if isinstance(schema, list):
            return [self.hoisted(each, names) for each in schema]  # pyright: ignore[reportUnknownVariableType]
        if not isinstance(schema, dict):
            return schema
        parts: dict[str, Any] = dict(schema)  # pyright: ignore[reportUnknownArgumentType]
        definitions: dict[str, Any] = parts.pop("$defs", {})
        names = {**(names or {}), **{name: self._free_name(name, each) for name, each in definitions.items()}}
        for name, each in definitions.items():
            self.found[names[name]] = self.hoisted(each, names)
        if isinstance(reference := parts.get("$ref"), str):
            name = reference.rpartition("/")[2]
            parts["$ref"] = f"#/components/schemas/{names.get(name, name)}"
        return {key: each if key in _VALUES else self.hoisted(each, names) for key, each in parts.items()}

    def _free_name(self, name: str, schema: Any) -> str:
        free, number = name, 2
        while free in self._sources and self._sources[free] != schema:
            free, number = f"{name}{number}", number + 1
        self._sources[free] = schema
        return free


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
    schema = schemas.of_model(route.takes, is_input=True)
    required = schema.get("required", [])
    return [
        {
            "name": name,
            "in": "query",
            "required": name in required,
            **({"description": each.pop("description")} if "description" in each else {}),
            "schema": _without_null(each),
        }
        for name, each in schema.get("properties", {}).items()
    ]


def _without_null(schema: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of a parameter, which is left out instead of being null."""
    schema = {key: each for key, each in schema.items() if key != "default" or each is not None}
    choices = [each for each in schema.get("anyOf", ()) if each != {"type": "null"}]
    if len(choices) == 1:
        return {**{key: each for key, each in schema.items() if key != "anyOf"}, **choices[0]}
    return {**schema, "anyOf": choices} if choices else schema


def _body(route: ApiRoute[Any], schemas: _Schemas) -> dict[str, Any]:
    if route.by_kind is None:
        return schemas.of_model(route.takes, is_input=True)
    kinds: list[dict[str, Any]] = []
    for kind, model in route.by_kind.items():
        schema = schemas.of_model(model, is_input=True)
        kinds.append({**schema, "title": kind, "properties": {**schema["properties"], "kind": {"const": kind}}})
    return {"oneOf": kinds}


def _responses(route: ApiRoute[Any], schemas: _Schemas) -> dict[str, Any]:
    if isinstance(route.answers, type):
        answer = schemas.of_model(route.answers, is_input=False)
    else:
        answer = schemas.hoisted(route.answers) if route.answers is not None else {"type": "string"}
    statuses = {route.status, *route.more_statuses}
    good = {status: _response(status, route.media_type, answer) for status in statuses if status < 400}
    problems = {*_ANY_ROUTE, *(status for status in statuses if status >= 400)}
    problems |= {404} if "{" in route.path else set()
    problems |= set() if route.method == "GET" else set(_WRITES)
    bad = {status: _response(status, MEDIA_TYPE, {"$ref": "#/components/schemas/Problem"}) for status in problems}
    return {str(status): response for status, response in sorted({**good, **bad}.items())}


def _response(status: int, media_type: str, schema: Mapping[str, Any]) -> dict[str, Any]:
    return {"description": HTTPStatus(status).phrase, "content": {media_type: {"schema": schema}}}
