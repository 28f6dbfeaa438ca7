"""The base class for parameters of a built-in tool. A pydantic model gives the JSON Schema and checks the values."""

from functools import cache
from typing import Any, Self

from pydantic import ConfigDict, ValidationError

from orga.activities.ports import ToolError
from orga.workflows.types.record import CheckedInput
from orga.workflows.types.tool_calls.tools import Effect, ToolSpec


class Parameters(CheckedInput):
    """The base of the parameters of a built-in tool. The language model reads the `description` of each field."""

    model_config = ConfigDict(extra="forbid")

    @classmethod
    @cache
    def json_schema(cls) -> dict[str, Any]:
        """Return the schema that the language model reads. All callers share the object, so do not change it."""
        return without_titles(cls.model_json_schema())

    @classmethod
    def tool_spec(cls, name: str, effect: Effect, description: str) -> ToolSpec:
        """Return the definition of a tool with these parameters. The first one distinguishes calls in summaries."""
        return ToolSpec(
            name=name,
            description=description,
            parameters=cls.json_schema(),
            effect=effect,
            main_argument=next(iter(cls.model_fields)),
        )

    @classmethod
    def parse(cls, arguments: dict[str, Any]) -> Self:
        """Return the checked values. Raise ToolError (InvalidArguments) with the name of each wrong parameter."""
        try:
            return cls.model_validate(arguments)
        except ValidationError as error:
            raise ToolError(validation_error_text(error), kind="InvalidArguments") from error


_PLAIN_MESSAGES = {
    "missing_keyword_only_argument": "Missing required argument",
    "unexpected_keyword_argument": "Unexpected argument",
}
"""Replacements for messages of pydantic that mention Python's kinds of parameters."""


def validation_error_text(error: ValidationError) -> str:
    """Return pydantic's errors as one line, as in `invalid arguments: limit: Input should be greater than 0`."""
    details = error.errors(include_url=False, include_input=False, include_context=False)
    return "invalid arguments: " + "; ".join(
        f"{'.'.join(map(str, d['loc'])) or 'arguments'}: {_PLAIN_MESSAGES.get(d['type'], d['msg'])}" for d in details
    )


def without_titles(schema: dict[str, Any]) -> dict[str, Any]:
    """Return a schema without pydantic's titles, because they repeat the names. A property called `title` stays."""
    return {
        key: _value_without_titles(key, value)
        for key, value in schema.items()
        if not (key == "title" and isinstance(value, str))
    }


def _value_without_titles(key: str, value: Any) -> Any:
    if key in ("properties", "$defs"):
        return {name: without_titles(inner) for name, inner in value.items()}
    if key in ("default", "examples", "enum", "const"):
        return value
    if isinstance(value, dict):
        return without_titles(value)  # pyright: ignore[reportUnknownArgumentType]
    if isinstance(value, list):
        return [without_titles(v) if isinstance(v, dict) else v for v in value]  # pyright: ignore
    return value
