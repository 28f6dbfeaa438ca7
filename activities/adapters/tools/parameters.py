"""Parameters of a built-in tool. One pydantic model gives the JSON Schema and checks the values."""

from functools import cache
from typing import Any, Self

from pydantic import ConfigDict, ValidationError

from orga.activities.ports import ToolError
from orga.workflows.types.record import CheckedInput


class Parameters(CheckedInput):
    """Base of the built-in tools' parameters. The model reads the `description` of each field."""

    model_config = ConfigDict(extra="forbid")

    @classmethod
    @cache
    def json_schema(cls) -> dict[str, Any]:
        """Return the schema that is offered to the model. All callers share the object, so do not change it."""
        return without_titles(cls.model_json_schema())

    @classmethod
    def parse(cls, arguments: dict[str, Any]) -> Self:
        """Return the checked values. Raise ToolError (InvalidArguments), which names the parameter of each error."""
        try:
            return cls.model_validate(arguments)
        except ValidationError as error:
            raise ToolError(validation_error_text(error), kind="InvalidArguments") from error


_PLAIN_MESSAGES = {
    "missing_keyword_only_argument": "Missing required argument",
    "unexpected_keyword_argument": "Unexpected argument",
}
"""Replacements for pydantic's messages about function arguments, which mention Python's kinds of parameters."""


def validation_error_text(error: ValidationError) -> str:
    """Return pydantic's errors as one line: `limit: Input should be less than or equal to 1000`."""
    details = error.errors(include_url=False, include_input=False, include_context=False)
    return "invalid arguments: " + "; ".join(
        f"{'.'.join(map(str, d['loc'])) or 'arguments'}: {_PLAIN_MESSAGES.get(d['type'], d['msg'])}" for d in details
    )


def without_titles(schema: dict[str, Any]) -> dict[str, Any]:
    """Return a schema without pydantic's titles, which repeat each name. A property called `title` stays."""
    return {
        key: _without_title(key, value)
        for key, value in schema.items()
        if not (key == "title" and isinstance(value, str))
    }


def _without_title(key: str, value: Any) -> Any:
    if key in ("properties", "$defs"):
        return {name: without_titles(inner) for name, inner in value.items()}
    if key in ("default", "examples", "enum", "const"):
        return value
    if isinstance(value, dict):
        return without_titles(value)  # pyright: ignore[reportUnknownArgumentType]
    if isinstance(value, list):
        return [without_titles(v) if isinstance(v, dict) else v for v in value]  # pyright: ignore
    return value
