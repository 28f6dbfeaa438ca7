"""Values against a JSON Schema, offline and in linear time: arguments of a call, final answers."""

import json
from functools import lru_cache
from typing import Any

from jsonschema_rs import Draft202012Validator, ReferencingError, RegexOptions, ValidationError

_MAX_ERRORS = 10
_MAX_CHARACTERS = 200


def argument_errors(schema: dict[str, Any], arguments: Any) -> list[str]:
    """Return what is wrong with `arguments`, each with its JSON path (`$.limit: ...`); at most 10 of 200 characters.

    Raises:
        ValueError: When the schema itself is invalid, refers to another document, or has a pattern with
            look-around or back-references, which cannot be matched in linear time.
    """
    validator = _validator(json.dumps(schema, sort_keys=True))
    try:
        json.dumps(arguments, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return ["$: contains text that is not valid Unicode"]
    errors: list[str] = []
    for error in validator.iter_errors(arguments):
        if len(errors) == _MAX_ERRORS:
            break
        errors.append(_cut(f"{_path(error.instance_path)}: {error.message}"))
    return errors


def schema_problem(schema: dict[str, Any]) -> str:
    """Return why a schema cannot be used, or "" when it can."""
    try:
        _validator(json.dumps(schema, sort_keys=True))
    except ValueError as error:
        return str(error)
    return ""


@lru_cache(maxsize=256)
def _validator(schema: str) -> Draft202012Validator:
    try:
        # Without `offline` a remote `$ref` is fetched over the network.
        return Draft202012Validator(json.loads(schema), pattern_options=RegexOptions(), offline=True)
    except (ValidationError, ReferencingError, ValueError) as error:
        why = str(error).strip().splitlines()[0]
        raise ValueError(_cut(f"its schema is invalid: {why}")) from error


def _path(parts: list[str | int]) -> str:
    return "$" + "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in parts)


def _cut(text: str) -> str:
    return text if len(text) <= _MAX_CHARACTERS else text[: _MAX_CHARACTERS - 1] + "…"
