"""The API for modules of tool functions: the `tool` decorator, `ToolContext`, `ToolError`, `Media`."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar, get_args, overload

from orga.activities.media import Media
from orga.activities.ports import ToolContext, ToolError
from orga.workflows.types.tool_calls.tools import Effect

__all__ = ["Media", "ToolContext", "ToolError", "ToolMarks", "marks_of", "tool"]

_ATTRIBUTE = "__orga_tool__"
_F = TypeVar("_F", bound=Callable[..., Any])


@dataclass(frozen=True)
class ToolMarks:
    """The options that a decorator gave a function. A function without a decorator counts as irreversible."""

    effect: Effect = "irreversible"
    name: str | None = None
    """The tool's name. None means the function's own name."""
    timeout_s: float | None = None
    blocking: bool = False
    """True if the function can block for long. It then runs in its own process, which can be killed."""
    output_schema: Any = None
    """A type or a JSON Schema of the returned value. None means the function's annotation."""


@overload
def tool(function: _F, /) -> _F: ...
@overload
def tool(
    *,
    effect: Effect = "irreversible",
    name: str | None = None,
    timeout_s: float | None = None,
    blocking: bool = False,
    output_schema: Any = None,
) -> Callable[[_F], _F]: ...
def tool(
    function: _F | None = None,
    /,
    *,
    effect: Effect = "irreversible",
    name: str | None = None,
    timeout_s: float | None = None,
    blocking: bool = False,
    output_schema: Any = None,
) -> _F | Callable[[_F], _F]:
    """Mark a function as a tool: `@tool(effect="read_only")`, or just `@tool`. Code can still call it as before.

    `output_schema` is the type of the returned value, such as a pydantic model, or a JSON Schema as a dict. Without it,
    the function's return annotation counts if it names a model, a dataclass or a TypedDict.

    Raises:
        ValueError: There is no such effect, or something other than a function is marked.
    """
    if function is not None and not callable(function):
        raise ValueError(f'tool({function!r}): it is no function; name the options, as in @tool(effect="read_only")')
    if effect not in get_args(Effect):
        raise ValueError(f"tool(effect={effect!r}): there is no such effect; use one of {', '.join(get_args(Effect))}")
    marks = ToolMarks(effect, name, timeout_s, blocking, output_schema)

    def mark(function: _F) -> _F:
        setattr(function, _ATTRIBUTE, marks)
        return function

    return mark if function is None else mark(function)


def marks_of(*functions: Callable[..., Any]) -> ToolMarks:
    """Return the marks of the first function that has any, or the defaults."""
    return next((marks for function in functions if (marks := getattr(function, _ATTRIBUTE, None))), ToolMarks())
