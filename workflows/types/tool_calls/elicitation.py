"""Elicitation: input that an MCP server needs from people before it can finish a call."""

from typing import Any, Literal, Self

from orga.workflows.types.record import Record, replace_fields

INPUT_REQUIRED = "InputRequired"
"""Failure type of a call that needs input from a person. It is made once more with the input."""

MAX_INPUT_ROUNDS = 5
"""Times that one call may need input."""


class FormField(Record):
    """A field of a form."""

    name: str
    kind: Literal["string", "email", "uri", "date", "date-time", "number", "integer", "boolean", "list"] = "string"
    """The type of its value. A text can have a format, and a list has texts."""
    title: str = ""
    """Its name and the server's text about it, on one line."""
    options: tuple[str, ...] = ()
    """The only values of a text, or of each text of a list."""
    is_required: bool = True
    least: float | None = None
    """The smallest number, the fewest characters of a text, or the fewest choices of a list."""
    most: float | None = None


class AskedInput(Record):
    """One request of a server: a form, or an address that a person opens."""

    key: str
    message: str
    """The server's text, on one line."""
    url: str = ""
    fields: tuple[FormField, ...] = ()


class AskedInputs(Record):
    """The requests of a server that cannot finish a call without them."""

    server: str
    inputs: tuple[AskedInput, ...] = ()
    state: str | None = None
    """Text that the server gets back unchanged."""
    answers: dict[str, dict[str, Any] | None] = {}
    """Answers that people gave before, which the call needs again."""


class GivenInputs(Record):
    """The answers of people to a server's requests."""

    answers: dict[str, dict[str, Any] | None] = {}
    """Values of fields by the key of the request. None: declined."""
    state: str | None = None

    def with_answer(self, key: str, values: dict[str, Any] | None) -> Self:
        return replace_fields(self, {"answers": {**self.answers, key: values}})
