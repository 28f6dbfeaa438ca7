"""Describes the problems of a configuration to its author: the file and line, the key, and what is allowed there."""

import json
from collections.abc import Callable, Iterator
from itertools import islice
from typing import NamedTuple

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from orga.workflows.types.record import known_keys
from orga.workflows.types.text import meant_key_hint

KeySource = Callable[[tuple[str, ...]], str]
"""Returns the source of a key: `orga.toml:12`, or the variable."""

MAX_SHOWN = 20
"""Problems shown per file."""
MAX_VALUE_CHARS = 60
"""Characters of a value in a problem."""


def problem_lines(error: ValidationError, model: type[BaseModel], source: KeySource) -> list[str]:
    """Return one line per problem. If some are left out, the last line has their number."""
    shown = islice(key_problems(error, model), MAX_SHOWN)
    lines = [f"{source(path)}: {'.'.join(path) or 'the file'}: {text}" for path, text in shown]
    if error.error_count() > MAX_SHOWN:
        lines.append(f"and {error.error_count() - MAX_SHOWN} more problems")
    return lines


class ConfigProblem(NamedTuple):
    path: tuple[str, ...]
    text: str
    """The problem, and what is allowed."""


def key_problems(error: ValidationError, model: type[BaseModel]) -> Iterator[ConfigProblem]:
    for details in error.errors(include_url=False):
        # pydantic ends the path with "[key]" if the key of a table is invalid, and not its value
        path = tuple(str(part) for part in details["loc"] if part != "[key]")
        yield ConfigProblem(path, _problem_text(details, model, path))


def unknown_key_remedy(key: str, known: list[str]) -> str:
    """Return the remedy for an unknown key: the nearest known key, and all allowed ones."""
    hint = meant_key_hint(key, known)
    return f"{hint}allowed: {', '.join(known)}" if known else f"{hint}no key is allowed here"


def _problem_text(details: ErrorDetails, model: type[BaseModel], path: tuple[str, ...]) -> str:
    if details["type"] == "extra_forbidden":
        return f"unknown key; {unknown_key_remedy(path[-1], known_keys(model, path[:-1]))}"
    if details["type"] in {"tuple_type", "list_type"}:
        return f"{_value_text(details['input'])} should be a list{_list_example(details['input'])}"
    message = details["msg"].removeprefix("Value error, ").removeprefix("Input ")
    return f"{_value_text(details['input'])} {message}" if message.startswith("should") else message


def _list_example(value: object) -> str:
    if isinstance(value, str) and len(value) <= MAX_VALUE_CHARS:
        return f", as [{json.dumps(value, ensure_ascii=False)}]"
    return ""


def _value_text(value: object) -> str:
    text = repr(value)
    return text if len(text) <= MAX_VALUE_CHARS else f"{text[: MAX_VALUE_CHARS - 1]}…"
