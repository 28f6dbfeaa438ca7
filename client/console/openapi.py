"""The OpenAPI 3.1 document of the interface, generated from the declarations of its routes."""

import re
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any

from pydantic import BaseModel

from orga.client.console.problems import MEDIA_TYPE
from orga.client.console.routes import API, ApiRoute
from orga.client.console.schemas import shared_schemas

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

_PLACE = "#/components/schemas/"

_CSRF_PARAMETER = {
    "name": "X-Orga-Console",
    "in": "header",
    "required": True,
    "description": "No page of another origin can send it.",
    "schema": {"const": "1"},
}


def openapi_document(routes: Sequence[ApiRoute[Any]], version: str) -> dict[str, Any]:
    """Return the document with all routes."""
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
        self._references, self.found = shared_schemas(inputs, answers, f"{_PLACE}{{model}}")

    def input(self, model: type[BaseModel]) -> dict[str, Any]:
        """Return the schema itself, not a reference."""
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
            **({"description": each["description"]} if "description" in each else {}),
            "schema": _without_null(each),
        }
        for name, each in schema.get("properties", {}).items()
    ]


def _without_null(schema: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of a parameter, which is left out instead of being null."""
    schema = {key: each for key, each in schema.items() if key != "description" and (key, each) != ("default", None)}
    choices = [each for each in schema.get("anyOf", ()) if each != {"type": "null"}]
    if len(choices) == 1:
        return {**{key: each for key, each in schema.items() if key != "anyOf"}, **choices[0]}
    return {**schema, "anyOf": choices} if choices else schema


def _body(route: ApiRoute[Any], schemas: _Schemas) -> dict[str, Any]:
    if route.by_kind is None:
        return schemas.input(route.takes)
    kinds: list[dict[str, Any]] = []
    for kind, model in route.by_kind.items():
        schema = schemas.input(model)
        kinds.append({**schema, "title": kind, "properties": {**schema["properties"], "kind": {"const": kind}}})
    return {"oneOf": kinds}


def _responses(route: ApiRoute[Any], schemas: _Schemas) -> dict[str, Any]:
    answer = schemas.answer(route.answers) if isinstance(route.answers, type) else route.answers or {"type": "string"}
    statuses = {route.status, *route.more_statuses}
    good = {status: _response(status, route.media_type, answer) for status in statuses if status < 400}
    problems = {*_ANY_ROUTE, *(status for status in statuses if status >= 400)}
    problems |= {404} if "{" in route.path else set()
    problems |= set() if route.method == "GET" else set(_WRITES)
    bad = {status: _response(status, MEDIA_TYPE, {"$ref": f"{_PLACE}Problem"}) for status in problems}
    return {str(status): response for status, response in sorted({**good, **bad}.items())}


def _response(status: int, media_type: str, schema: Mapping[str, Any]) -> dict[str, Any]:
    return {"description": HTTPStatus(status).phrase, "content": {media_type: {"schema": schema}}}
