"""Questions to people for a server that needs input, and the values in their answers."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import date, datetime
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
    unit = "" if field.kind in ("number", "integer") else " of them" if field.kind == "list" else " characters"
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
    size = value if isinstance(value, int | float) else len(value)
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


def _matching(pattern: str) -> Callable[[str], str]:
    def text_of(text: str) -> str:
        if re.fullmatch(pattern, text) is None:
            raise ValueError(text)
        return text

    return text_of


def _timestamp(text: str) -> str:
    if (found := datetime.fromisoformat(text)).tzinfo is None:  # the format of JSON Schema needs it
        raise ValueError(text)
    return found.isoformat()


_READERS: Mapping[str, Callable[[str], Any]] = {
    "string": str,
    "email": _matching(r"[^@\s]+@[^@\s]+"),
    "uri": _matching(r"[A-Za-z][A-Za-z0-9+.-]*:\S+"),
    "date": lambda text: date.fromisoformat(text).isoformat(),
    "date-time": _timestamp,
    "number": _number,
    "integer": int,
    "boolean": lambda text: text == YES,
    "list": lambda text: [*dict.fromkeys(each.strip() for each in text.split(","))],
}
_KIND_NAMES = {
    "string": "a text",
    "email": "an email address",
    "uri": "an address such as https://example.org",
    "date": "a date such as 2026-01-31",
    "date-time": "a time such as 2026-01-31T09:00:00+01:00",
    "number": "a number",
    "integer": "a whole number",
    "boolean": "yes or no",
}
