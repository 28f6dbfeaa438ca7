"""What a module of tool functions imports: the `tool` decorator, `ToolContext`, `ToolError`."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from orga.activities.ports import ToolContext, ToolError
from orga.workflows.types.tools import Effect

__all__ = ["ToolContext", "ToolError", "ToolMarks", "marks_of", "tool"]

_ATTRIBUTE = "__orga_tool__"
_F = TypeVar("_F", bound=Callable[..., Any])


@dataclass(frozen=True)
class ToolMarks:
    """What a decorator said about a function; a function without one counts as irreversible."""

    effect: Effect = "irreversible"
    name: str | None = None
    """None takes the function's own name."""
    timeout_s: float | None = None
    blocking: bool = False
    """It may block for long: it runs in a process of its own, which can be killed."""


def tool(
    *, effect: Effect = "irreversible", name: str | None = None, timeout_s: float | None = None, blocking: bool = False
) -> Callable[[_F], _F]:
    """Mark a function as a tool: `@tool(effect="read_only")`. It can still be called as before."""
    marks = ToolMarks(effect, name, timeout_s, blocking)

    def mark(function: _F) -> _F:
        setattr(function, _ATTRIBUTE, marks)
        return function

    return mark


def marks_of(function: Callable[..., Any]) -> ToolMarks:
    """Return the marks of a function, or the defaults."""
    return getattr(function, _ATTRIBUTE, None) or ToolMarks()
