"""Questions to people for a server that needs input, and the values in their answers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import isfinite
from typing import Any

from orga.workflows.types.tool_calls.elicitation import MAX_INPUT_ROUNDS, AskedInput, FormField

INPUT_EXPIRES_S = 86_400.0
"""Seconds until a request without an answer counts as declined."""

LEFT_OUT = "-"
"""The answer that leaves an optional field out."""

YES, NO, DONE = "yes", "no", "done"


def input_question_text(server: str, tool: str, asked: AskedInput, field: FormField | None, problem: str = "") -> str:
    """Return the question about a field, or about a request without fields."""
    text = f"The MCP server {server!r} asks, for {tool}: {asked.message}"
    if asked.url:
        text += f"\nIt wants you to open {asked.url}\nOpen it only if you trust this server. Then answer {DONE!r}."
    elif field is not None:
        optional = "" if field.is_required else f" (optional, {LEFT_OUT!r} leaves it out)"
        wanted = "Choose an option" if input_options(asked, field) else f"Give {_kind_text(field)}"
        text += f"\n{field.title}{optional}\n{wanted}{_limits_text(field)}."
        text += " Never give a password, a key or the number of a card."
    return f"{text}\n{problem}" if problem else text


def _limits_text(field: FormField) -> str:
    limits = (("at least", field.least), ("at most", field.most))
    unit = {"string": " characters", "list": " of them"}.get(field.kind, "")
    given = [f"{name} {limit:.15g}{unit}" for name, limit in limits if limit is not None]
    return f", {', '.join(given)}" if given else ""


def unasked_text(rounds: int) -> str:
    """Return why nobody is asked after this many rounds."""
    return f"people were asked {MAX_INPUT_ROUNDS} times" if rounds else "a lookup before the first step cannot ask"


def input_options(asked: AskedInput, field: FormField | None) -> tuple[str, ...]:
    """Return the only valid answers. Empty: any text."""
    if asked.url:
        return (DONE,)
    if field is None:
        return (YES, NO)
    if field.kind == "list":  # an answer may have several of them
        return ()
    options = (YES, NO) if field.kind == "boolean" else field.options
    return (*options, LEFT_OUT) if options and not field.is_required else options


def field_value(field: FormField, answer: str) -> Any:
    """Return the value of a field. None: left out. Raise ValueError with the reason if the answer is none."""
    if answer.strip() == LEFT_OUT and not field.is_required:
        return None
    try:
        value = _READERS[field.kind](answer.strip() if field.kind != "string" else answer)
    except ValueError:
        value = None
    if value is None or (field.kind == "list" and not {*value} <= {*field.options}):
        raise ValueError(f"{answer[:40]!r} is not {_kind_text(field)}")
    size = len(value) if field.kind in ("string", "list") else value
    if (field.least is not None and size < field.least) or (field.most is not None and size > field.most):
        raise ValueError(f"{answer[:40]!r} is not allowed{_limits_text(field)}")
    return value


def _kind_text(field: FormField) -> str:
    if field.kind == "list":
        return f"one or several of {', '.join(field.options)}, separated by commas"
    return _KIND_NAMES[field.kind]


def _number(text: str) -> float:
    value = float(text)
    if not isfinite(value):
        raise ValueError(text)
    return value


_READERS: Mapping[str, Callable[[str], Any]] = {
    "string": str,
    "number": _number,
    "integer": int,
    "boolean": lambda text: text == YES,
    "list": lambda text: [*dict.fromkeys(each.strip() for each in text.split(","))],
}
_KIND_NAMES = {"string": "a text", "number": "a number", "integer": "a whole number", "boolean": "yes or no"}
