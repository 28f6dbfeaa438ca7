"""Types of the interface for the scripts of the pages, from the OpenAPI document. `make console-check` writes them."""

import json
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from orga.client.console.app import ROUTES
from orga.client.console.openapi import openapi_document
from orga.client.console.routes import API


def typescript(schema: Mapping[str, Any]) -> str:
    """Return the type of the values that a schema describes. Every key of an answer is present."""
    if "$ref" in schema:
        return schema["$ref"].rpartition("/")[2]
    if "const" in schema or "enum" in schema:
        return f"({' | '.join(json.dumps(each) for each in schema.get('enum', [schema.get('const')]))})"
    if choices := schema.get("anyOf") or schema.get("oneOf"):
        return f"({' | '.join(typescript(each) for each in choices)})"
    if isinstance(schema.get("type"), list):
        return f"({' | '.join(typescript({**schema, 'type': each}) for each in schema['type'])})"
    match schema.get("type"):
        case "array":
            items = [typescript(each) for each in schema.get("prefixItems", ())]
            return f"[{', '.join(items)}]" if items else f"{typescript(schema.get('items', {}))}[]"
        case "object":
            keys = [f"{json.dumps(name)}: {typescript(each)}" for name, each in schema.get("properties", {}).items()]
            return f"{{ {'; '.join(keys)} }}" if keys else "Record<string, any>"
        case "integer" | "number":
            return "number"
        case "string" | "boolean" | "null" as name:
            return name
        case _:
            return "any"


def answer(operation: Mapping[str, Any]) -> str:
    """Return the type of a request's answer."""
    [content, *_] = [each["content"] for status, each in operation["responses"].items() if status.startswith("2")]
    [body] = content.values()
    return typescript(body["schema"])


def declarations(document: Mapping[str, Any]) -> str:
    """Return all named types, and `Answer<Path>`: what `get` returns for a path, with or without a query."""
    named = [f"export type {name} = {typescript(each)};" for name, each in document["components"]["schemas"].items()]
    paths = {path.removeprefix(API): answer(each["get"]) for path, each in document["paths"].items() if "get" in each}
    choices = [
        f"  P extends `{re.sub(r'{.*?}', '${string}', path)}${{'' | `?${{string}}`}}` ? {paths[path]} :"
        for path in sorted(paths, key=lambda path: path.count("/"), reverse=True)
    ]
    return "\n".join([*named, "export type Answer<P extends string> =", *choices, "  any;", ""])


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(declarations(openapi_document(ROUTES, "")))
