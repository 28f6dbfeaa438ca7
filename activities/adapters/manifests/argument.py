"""One argument of a tool as a manifest declares it."""

from typing import Any, Literal, Self

from pydantic import Field, StrictBool, StrictFloat, StrictInt

from orga.workflows.types.record import Border, replace_fields

ArgumentType = Literal[
    "string", "integer", "number", "boolean", "enum", "port", "url", "path", "ip_address", "cidr", "hostname",
    "scope_target", "duration", "regex", "array",
]  # fmt: skip

Number = StrictInt | StrictFloat


class Argument(Border):
    """`[arguments.NAME]`. Which keys a type knows beside the first four is said where the type is (`kinds.py`)."""

    type: ArgumentType
    description: str = ""
    required: StrictBool | None = None
    """None: required unless there is a default."""
    default: Any = None
    allowed: tuple[Any, ...] | None = None
    """The only values there are."""
    pattern: str | None = None
    """RE2; the whole value has to match."""
    min: Number | None = None
    """Of a number; of a text its characters, of an array its items, of a duration its seconds."""
    max: Number | None = None
    schemes: tuple[str, ...] = ()
    scope: tuple[str, ...] = ()
    """Networks and hosts that a target has to be in: `10.0.0.0/8`, `example.org`, `*.example.org`."""
    must_exist: StrictBool = False
    multiline: StrictBool = False
    """Line breaks and tabs are let through."""
    allow_dash: StrictBool = False
    """A value may begin with a dash: the author has made sure that the program takes it for no flag."""
    items: "Argument | None" = Field(default=None)

    def without_default(self) -> Self:
        """Return the argument with nothing to fall back on."""
        return replace_fields(self, {"default": None})

    def without_values(self) -> Self:
        """Return the argument that takes any value of its type, and has none of its own."""
        return replace_fields(self, {"allowed": None, "default": None})

    def without_existence(self) -> Self:
        """Return the argument whose path need not exist."""
        return replace_fields(self, {"must_exist": False})

    @property
    def is_required(self) -> bool:
        """Whether a call has to give it."""
        return self.default is None if self.required is None else self.required

    @property
    def may_be_missing(self) -> bool:
        """Whether a call may leave it without any value."""
        return not self.is_required and self.default is None
