"""What is wrong with a configuration, for the person who wrote it: where, which key, and what is allowed there."""

import json
from collections.abc import Callable

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from orga.workflows.types.record import known_keys
from orga.workflows.types.text import meant_key

Place = Callable[[tuple[str, ...]], str]
"""Says where a key was written: `orga.toml:12`, or the variable."""

MAX_SHOWN = 20
"""Problems of one file."""


def explained(error: ValidationError, model: type[BaseModel], place: Place) -> list[str]:
    """Return one line a problem, and how many are left out."""
    found = error.errors(include_url=False)
    left = len(found) - MAX_SHOWN
    more = [f"and {left} more problems"] if left > 0 else []
    return [*(_line(details, model, place) for details in found[:MAX_SHOWN]), *more]


def nearest(key: str, known: list[str]) -> str:
    """Return the remedy for an unknown key: the nearest known one, and what there is."""
    hint = meant_key(key, known)
    return f"{hint}allowed: {', '.join(known)}" if known else f"{hint}no key is allowed here"


def _line(details: ErrorDetails, model: type[BaseModel], place: Place) -> str:
    path = tuple(str(part) for part in details["loc"] if part != "[key]")
    return f"{place(path)}: {'.'.join(path) or 'the file'}: {reason(details, model, path)}"


def reason(details: ErrorDetails, model: type[BaseModel], path: tuple[str, ...]) -> str:
    """Return what is wrong with the key at `path` and what is allowed."""
    if details["type"] == "extra_forbidden":
        return f"unknown key; {nearest(path[-1], known_keys(model, path[:-1]))}"
    if details["type"] in {"tuple_type", "list_type"}:
        return f"{_shown(details['input'])} should be a list{_as_list(details['input'])}"
    message = details["msg"].removeprefix("Value error, ").removeprefix("Input ")
    return f"{_shown(details['input'])} {message}" if message.startswith("should") else message


def _as_list(value: object) -> str:
    return f", as [{json.dumps(value, ensure_ascii=False)}]" if isinstance(value, str) and len(value) <= 60 else ""


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:59] + "…"
