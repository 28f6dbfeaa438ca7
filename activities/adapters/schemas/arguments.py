"""Values against a JSON Schema of anybody: arguments of a call, final answers. Nothing here can take long.

A model, a starter and an MCP server each write schemas and values. What may cost more than a moment is done by a
process that is killed when it has used up its time or its memory.
"""

import json
from functools import lru_cache
from typing import Any, cast

from orga.activities.adapters.schemas.process import CheckFailed, check_in_process
from orga.activities.adapters.schemas.size import SchemaSize
from orga.activities.adapters.schemas.validation import errors_of, validator
from orga.activities.threads import Threads

_MAX_PAIRS = 5_000
"""Parts of the schema times those of the value that are gone through here: at most some 30 ms."""

_MAX_BYTES = 2_000_000
"""Parts of the schema times bytes of the value: each part may repeat the value in its error."""

_HERE = Threads("schemas", 2)
_BY_PROCESS = Threads("schemas-by-process", 4)
"""Apart: what takes a moment never stands behind what may take a second."""


async def find_argument_errors(schema: dict[str, Any], arguments: Any) -> list[str]:
    """Return what `argument_errors` does, from an event loop, in threads that nothing else can hold."""
    found = await _HERE.run(_found_here, schema, arguments)
    return await _BY_PROCESS.run(_found_by_process, schema, arguments) if found is None else found


def argument_errors(schema: dict[str, Any], arguments: Any) -> list[str]:
    """Return what is wrong with `arguments`, each with its JSON path (`$.limit: ...`); at most 10 of 200 characters.

    It may wait for a process for a second or two: an event loop asks `find_argument_errors`.

    Raises:
        ValueError: When the schema itself is invalid, refers to another document, stands for too much, or has a
            pattern with look-around or back-references, which cannot be matched in linear time.
    """
    found = _found_here(schema, arguments)
    return _found_by_process(schema, arguments) if found is None else found


def _found_here(schema: dict[str, Any], arguments: Any) -> list[str] | None:
    """Return what is wrong, or None where that may cost more than a moment."""
    text = _text(schema)
    size = _size(text)
    try:
        value = _json(arguments)
    except UnicodeEncodeError:
        return ["$: contains text that is not valid Unicode"]
    except RecursionError:
        return ["$: is nested too deep"]
    if size.is_plain and size.parts * len(value) <= _MAX_BYTES and _is_small(arguments, _MAX_PAIRS // size.parts):
        return [] if validator(text).is_valid(arguments) else errors_of(text, arguments)
    return None


def _found_by_process(schema: dict[str, Any], arguments: Any) -> list[str]:
    try:
        return check_in_process(_text(schema), _json(arguments))
    except CheckFailed:
        return ["$: cannot be checked against its schema within a second; make it smaller"]


def schema_problem(schema: dict[str, Any]) -> str:
    """Return why a schema cannot be used, or "" when it can."""
    try:
        text = _text(schema)
        if not _size(text).is_plain:
            check_in_process(text, None)
        else:
            validator(text)
    except CheckFailed:
        return "its schema is too much work to read"
    except ValueError as error:
        return str(error)
    return ""


def _json(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False).encode()


def _text(schema: dict[str, Any]) -> str:
    try:
        return json.dumps(schema, sort_keys=True)
    except RecursionError:
        raise ValueError("its schema is nested too deep") from None


@lru_cache(maxsize=256)
def _size(schema: str) -> SchemaSize:
    return SchemaSize(json.loads(schema))


def _is_small(value: Any, parts: int) -> bool:
    """Return whether a value has at most so many parts, without looking at more of them."""
    level = [value]
    while level and parts >= 0:
        parts -= len(level)
        level = [inner for outer in level for inner in _inner(outer)]
    return parts >= 0


def _inner(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return list(cast("dict[str, Any]", value).values())
    return cast("list[Any]", value) if isinstance(value, list) else []
