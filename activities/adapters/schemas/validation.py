"""Checks a value against a JSON Schema, offline. `arguments.py` bounds the cost."""

import json
from functools import lru_cache
from typing import Any

from jsonschema_rs import ReferencingError, RegexOptions, ValidationError, Validator, validator_cls_for

MAX_ERRORS = 10
MAX_CHARACTERS = 200


@lru_cache(maxsize=256)
def schema_validator(schema: str) -> Validator:
    """Return the validator of a schema, given as JSON. Its draft is the one of `$schema`, or else 2020-12.

    Raises:
        ValueError: When the schema is invalid, refers to another document, or has a pattern with look-around or
            back-references, which cannot be matched in linear time.
    """
    try:
        given = json.loads(schema)
        # Without `offline` a remote `$ref` is fetched over the network.
        return validator_cls_for(given)(given, pattern_options=RegexOptions(), offline=True)
    except (ValidationError, ReferencingError, ValueError) as error:
        why = str(error).strip().splitlines()[0]
        raise ValueError(bounded_line(f"its schema is invalid: {why}")) from error


def schema_errors(schema: str, value: Any) -> list[str]:
    """Return the errors of a value, each with its JSON path."""
    errors: list[str] = []
    for error in schema_validator(schema).iter_errors(value):
        if len(errors) == MAX_ERRORS:
            break
        errors.append(bounded_line(f"{_json_path(error.instance_path)}: {error.message}"))
    return errors


def bounded_line(text: str) -> str:
    """Return a problem on one line of bounded length."""
    return text if len(text) <= MAX_CHARACTERS else text[: MAX_CHARACTERS - 1] + "…"


def _json_path(parts: list[str | int]) -> str:
    return "$" + "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in parts)
