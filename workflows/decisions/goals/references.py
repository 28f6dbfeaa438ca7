"""References in a step's arguments to the value of another step: `{"$step": "s1", "path": ["items", 0, "id"]}`.

The value replaces the reference as soon as the step is done, so no model has to copy it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from pydantic_core import to_json

from orga.workflows.types.goals.pursuit import MAX_ARGUMENTS_BYTES, PlanStep
from orga.workflows.types.goals.requests import REFERENCE_KEY, referred_steps
from orga.workflows.types.json_text import MAX_DEPTH, as_object, as_objects, as_text, is_deeper
from orga.workflows.types.text import one_line


class NoSuchValue(Exception):
    """A step has no value at the path of a reference."""


def with_values(step: PlanStep, values: Mapping[str, Any]) -> PlanStep:
    """Return the step with the values of these finished steps in its arguments.

    If a step has no value at the path, or the values are too large or deep for a plan, the model writes the arguments.
    """
    if step.arguments is None or values.keys().isdisjoint(referred_steps(step.arguments)):
        return step
    try:
        arguments = _filled(step.arguments, values)
    except NoSuchValue:
        return step.with_fields(arguments=None)
    fits = not is_deeper(arguments, MAX_DEPTH) and len(to_json(arguments)) <= MAX_ARGUMENTS_BYTES
    return step.with_fields(arguments=arguments if fits else None)


def _filled(part: Any, values: Mapping[str, Any]) -> Any:
    if isinstance(part, list):
        return [_filled(each, values) for each in cast("list[Any]", part)]
    if not isinstance(part, dict):
        return part
    given = cast("dict[str, Any]", part)
    if REFERENCE_KEY not in given:
        return {key: _filled(each, values) for key, each in given.items()}
    step = str(given[REFERENCE_KEY])
    return _value_at(values[step], given.get("path")) if step in values else given


def _value_at(value: Any, path: object) -> Any:
    """Return the part of a value. Raise NoSuchValue if there is none: null is no value either.

    A part that itself contains a reference counts as none. Otherwise a tool could fetch the value of another step.
    """
    keys = cast("list[Any]", path) if isinstance(path, list) else [] if path is None else [cast("Any", path)]
    for key in keys:
        try:
            value = value[int(key) if isinstance(value, list) else str(key)]
        except (LookupError, TypeError, ValueError, OverflowError):
            raise NoSuchValue from None
    if value is None or next(referred_steps(value), None) is not None:
        raise NoSuchValue
    return value


def value_outline(schema: dict[str, Any] | None, most: int) -> str:
    """Return the fields of a schema's values for a model, on one line: `{id, items: [{name}]}`. "" without a schema."""
    text = "" if schema is None else _outline(schema, as_object(schema.get("$defs")), _OUTLINE_LEVELS)
    return one_line(text, most)


_OUTLINE_LEVELS, _OUTLINE_FIELDS = 3, 12
"""Levels, and fields or alternatives of each part. A hostile schema refers to itself a thousand times."""


def _outline(schema: object, named: Mapping[str, Any], levels: int) -> str:
    given = as_object(schema)
    given = as_object(named.get(as_text(given.get("$ref")).rpartition("/")[2])) or given
    if not levels:
        return ""
    if fields := list(as_object(given.get("properties")).items())[:_OUTLINE_FIELDS]:
        parts = ((name, _outline(each, named, levels - 1)) for name, each in fields)
        return "{" + ", ".join(f"{name}: {inner}" if inner else name for name, inner in parts) + "}"
    if "items" in given:
        return f"[{_outline(given['items'], named, levels - 1) or '…'}]"
    choices = as_objects(given.get("anyOf"))[:_OUTLINE_FIELDS]
    return next(filter(None, (_outline(each, named, levels - 1) for each in choices)), "")
