"""Reshapes tools so that providers accept them, and translates their calls back.

Every provider refuses some definitions (`$filter` as a property, `anyOf` at the top, long names), and one refused tool
makes every request fail. So definitions are reshaped before they are sent. One that is still refused is sent again
with a simpler schema, and is finally left out. The gate checks all arguments against the tool's own schema.
"""

import logging
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256

from pydantic_core import to_json

from orga.activities.adapters.models.dialect import Dialect
from orga.activities.adapters.models.errors import Refusal
from orga.activities.adapters.models.schema_shape import (
    MAX_PLAIN_CHARS,
    as_arguments_root,
    is_strict,
    plain_schema,
    portable_names,
    with_items,
    with_keys,
    with_names,
)
from orga.activities.ports import ModelRequest
from orga.workflows.types.json_text import FINAL_ANSWER
from orga.workflows.types.messages import Reply
from orga.workflows.types.parts import Parts, ToolCall
from orga.workflows.types.tool_calls.tools import ToolSpec

_NAME = re.compile(r"[a-zA-Z_][a-zA-Z0-9_-]{0,63}")
_DIGEST_CHARS = 8

MAX_QUOTED_BYTES = 2_000
"""Bytes of a schema. If its top cannot be sent, the description shows a schema up to this size as text."""

_FEW_TOOLS = 2
"""Refused tools after which all others become plain at once, because each refusal costs a request."""

_MAX_MARKS = 1_000
"""Digests of tools in a dialect. If there are more, all earlier ones are forgotten."""

_log = logging.getLogger(__name__)

_INDEX = (re.compile(r"declarations\W{1,4}(\d+)"), re.compile(r"(?:tools|functions)\W{1,5}(\d+)"))
"""The index of the refused tool in the request."""

_TOO_MANY = re.compile(r"(?:tools|functions)\b.{0,80}\b(?:maximum|at most|limit|max)\D{0,30}(\d{1,4})\b", re.IGNORECASE)
"""OpenAI: `Invalid 'tools': array too long. Expected an array with maximum length 128, but got …`."""


@dataclass(frozen=True)
class _ToolShape:
    own: ToolSpec
    sent: ToolSpec
    names: dict[str, str]
    """The names that are sent for properties, by the properties' own names."""
    mark: str
    """The digest of its definition. Its name is not enough, because another tool may have the same one."""


class WireTools:
    """The tools of one request, in the shapes that its provider is known to accept."""

    def __init__(self, tools: Sequence[ToolSpec], dialect: Dialect) -> None:
        self._dialect = dialect
        shapes = [_tool_shape(tool, dialect) for tool in tools]
        self._shapes = [shape for shape in shapes if shape.mark not in dialect.left_out][: dialect.max_tools]
        self._by_name = {shape.own.name: shape for shape in shapes}
        self._by_sent_name = {shape.sent.name: shape for shape in shapes}
        self._is_unchanged = len(shapes) == len(self._shapes) and all(shape.sent is shape.own for shape in shapes)

    def to_wire(self, request: ModelRequest) -> ModelRequest:
        """Return the request with its tools, and the calls in its messages, in the shape to send."""
        if self._is_unchanged:
            return request
        tools = tuple(shape.sent for shape in self._shapes)
        reshaped = ((message, _with_calls(message.parts, self._call_to_wire)) for message in request.messages)
        messages = tuple(each if parts is each.parts else each.with_parts(parts) for each, parts in reshaped)
        return replace(request, tools=tools, messages=messages)

    def from_wire(self, reply: Reply) -> Reply:
        """Return the reply with the tools' own names and properties in its calls."""
        parts = _with_calls(reply.parts, self._call_from_wire)
        return reply if parts is reply.parts else reply.with_differences(parts=parts)

    def lesson(self, error: Refusal) -> Dialect | None:
        """Return the dialect to try after a refusal of a tool: not strict, then its plain shape, then without it."""
        if error.kind != "InvalidRequest":
            return None
        dialect, shape = self._dialect, self._refused_shape(error.error.message)
        if shape is None:
            return self._lesson_of_limit(error)
        if dialect.strict_tools and is_strict(shape.sent.parameters):
            return replace(dialect, strict_tools=False)
        marks = {each.mark for each in self._shapes}
        if shape.mark not in dialect.plain_tools:
            is_common = len(marks & dialect.plain_tools) >= _FEW_TOOLS
            return replace(dialect, plain_tools=_with_marks(dialect.plain_tools, marks if is_common else {shape.mark}))
        if shape.own.name == FINAL_ANSWER:
            return replace(dialect, answer_tool=False)
        _log.warning("the tool %s is left out, since its definition is refused: %s", shape.own.name, error)
        return replace(dialect, left_out=_with_marks(dialect.left_out, {shape.mark}))

    def _lesson_of_limit(self, error: Refusal) -> Dialect | None:
        most = next((int(number) for number in _TOO_MANY.findall(error.error.message)), 0)
        if not 0 < most < len(self._shapes):
            return None
        _log.warning("%d tools are left out, since the model takes only %d: %s", len(self._shapes) - most, most, error)
        return replace(self._dialect, max_tools=most)

    def _refused_shape(self, refusal: str) -> _ToolShape | None:
        """Return the refused tool, by its index in the request, or else by its name."""
        for pattern in _INDEX:
            for index in map(int, pattern.findall(refusal)):
                if index < len(self._shapes):
                    return self._shapes[index]
        return next((shape for shape in self._shapes if _is_named(shape.sent.name, refusal)), None)

    def _call_to_wire(self, call: ToolCall) -> ToolCall:
        shape = self._by_name.get(call.name)
        if shape is None:
            return call
        arguments = with_keys(call.arguments, shape.own.parameters, shape.names) if shape.names else call.arguments
        return call.with_differences(name=shape.sent.name, arguments=arguments)

    def _call_from_wire(self, call: ToolCall) -> ToolCall:
        shape = self._by_sent_name.get(call.name)
        if shape is None:
            return call
        arguments = call.arguments
        if shape.names:
            arguments = with_keys(arguments, shape.own.parameters, shape.names, back=True)
        return call.with_differences(name=shape.own.name, arguments=arguments)


def _tool_shape(tool: ToolSpec, dialect: Dialect) -> _ToolShape:
    mark = sha256(to_json((tool.name, tool.description, tool.parameters))).hexdigest()
    names = portable_names(tool.parameters)
    schema = with_items(with_names(tool.parameters, names) if names else tool.parameters)
    parameters, description = as_arguments_root(schema), tool.description
    if mark in dialect.plain_tools:
        parameters, description = plain_schema(schema), description[:MAX_PLAIN_CHARS]
    elif parameters is not schema and len(shown := to_json(schema)) <= MAX_QUOTED_BYTES:
        description = f"{description}\n\nThe arguments fit this JSON Schema: {shown.decode()}".strip()
    name = tool.name if _NAME.fullmatch(tool.name) else _legal_name(tool.name)
    if (name, description) == (tool.name, tool.description) and parameters is tool.parameters:
        return _ToolShape(tool, tool, names, mark)
    return _ToolShape(tool, ToolSpec(name=name, description=description, parameters=parameters), names, mark)


def _legal_name(name: str) -> str:
    """Return a name that providers accept. It ends in a digest, so that no two tools get the same name."""
    digest = sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:_DIGEST_CHARS]
    legal = re.sub(r"^[^a-zA-Z]|[^a-zA-Z0-9_-]", "_", name)
    return f"{legal[: 63 - _DIGEST_CHARS]}_{digest}"  # 64 characters at most


def _is_named(name: str, refusal: str) -> bool:
    """Return whether a refusal quotes the name, or names it after "tool" or "function"."""
    return re.search(rf"['\"`]{re.escape(name)}['\"`]|(?:tool|function) {re.escape(name)}\b", refusal) is not None


def _with_calls(parts: Parts, change: Callable[[ToolCall], ToolCall]) -> Parts:
    """Return the parts with changed calls, or the same object if none is changed."""
    changed = tuple(change(part) if isinstance(part, ToolCall) else part for part in parts)
    return parts if all(new is old for new, old in zip(changed, parts, strict=True)) else changed


def _with_marks(known: frozenset[str], marks: set[str]) -> frozenset[str]:
    return frozenset(marks) if len(known) > _MAX_MARKS else known | marks
