"""The toolbox: which of the three reading tools are offered, and calls that fit their schemas."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

from orga.workflows.types.messages import ToolCall
from orga.workflows.types.tools import ToolSpec

_NEEDED = {"list_files": frozenset[str](), "search_text": frozenset({"query"}), "read_file": frozenset({"path"})}
_KNOWN = {
    "list_files": frozenset({"path", "pattern", "limit"}),
    "search_text": frozenset({"query", "path", "pattern", "regex", "ignore_case", "context", "limit"}),
    "read_file": frozenset({"path", "start_line", "end_line"}),
}


@dataclass(frozen=True)
class Toolbox:
    """Arguments that each usable tool takes."""

    arguments: Mapping[str, frozenset[str]]

    def has(self, tool: str, argument: str | None = None) -> bool:
        """Whether a tool can be used, with an optional argument."""
        return tool in self.arguments and (argument is None or argument in self.arguments[tool])

    def call(self, tool: str, **arguments: Any) -> ToolCall:
        """Return a call without an id yet, less the arguments that the tool does not take."""
        taken = {name: value for name, value in arguments.items() if name in self.arguments[tool]}
        return ToolCall(call_id="", name=tool, arguments=taken)

    def without(self, tools: frozenset[str]) -> "Toolbox":
        """Return the toolbox less some tools."""
        return Toolbox({name: taken for name, taken in self.arguments.items() if name not in tools})


def toolbox_of(specs: tuple[ToolSpec, ...]) -> Toolbox:
    """Return the tools whose schemas are as expected; any other is left alone."""
    return Toolbox({spec.name: taken for spec in specs if (taken := _arguments(spec)) is not None})


def _arguments(spec: ToolSpec) -> frozenset[str] | None:
    properties = spec.parameters.get("properties", {})
    if spec.name not in _NEEDED or not isinstance(properties, dict):
        return None
    shapes = cast("dict[str, Any]", properties)
    needed, known = _NEEDED[spec.name], _KNOWN[spec.name]
    fits = needed <= shapes.keys() and set(spec.parameters.get("required", ())) <= known
    return known & shapes.keys() if fits and all(_is_text(shapes[name]) for name in needed) else None


def _is_text(shape: Any) -> bool:
    return isinstance(shape, dict) and cast("dict[str, Any]", shape).get("type", "string") == "string"
