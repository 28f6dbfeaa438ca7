"""A model request as Anthropic's messages API takes it."""

from collections.abc import Iterable
from itertools import groupby
from typing import Any

from orga.activities.adapters.models.blocks import wire_block
from orga.activities.adapters.models.dialect import Dialect
from orga.activities.adapters.models.turns import BEGINNING, results_first, wire_id, wire_name
from orga.activities.ports import ModelRequest
from orga.workflows.types.messages import Message
from orga.workflows.types.parts import OpaquePart, Part, TextPart, ThinkingPart, ToolCall
from orga.workflows.types.tools import ToolSpec

THINKING = frozenset({"thinking", "redacted_thinking"})

_CACHE = {"cache_control": {"type": "ephemeral"}}
_GO_ON = "[Go on.]"
"""For one that ends with the assistant: most models take that for a prefill, which they refuse."""


def messages_body(request: ModelRequest, dialect: Dialect) -> dict[str, Any]:
    """Return the body of a streamed message, with its two prompt-cache breakpoints.

    One closes what is the same in every call (tools and system), one the conversation so far.
    """
    system = _system(request)
    tools = [_tool(spec) for spec in request.tools]
    messages = _messages(request.messages, dialect)
    _mark_cache(system or tools)
    _mark_cache([block for block in messages[-1]["content"] if block["type"] not in THINKING])
    body: dict[str, Any] = {
        "model": request.model,
        "messages": messages,
        "max_tokens": dialect.output_tokens(request),
        "stream": True,
    }
    if system:
        body["system"] = system
    if request.temperature is not None and dialect.temperature:
        body["temperature"] = request.temperature
    if stops := [stop for stop in request.stop if stop.strip()]:
        body["stop_sequences"] = stops
    if request.output_schema is not None:
        body["output_config"] = {"format": {"type": "json_schema", "schema": request.output_schema}}
    return body | _tools(tools, request, dialect)


def _system(request: ModelRequest) -> list[dict[str, Any]]:
    """Return every system text: those in the conversation have no other place here."""
    later = (message.text for message in request.messages if message.role == "system")
    return [block for text in (*request.system, *later) for block in _text(text)]


def _tools(tools: list[dict[str, Any]], request: ModelRequest, dialect: Dialect) -> dict[str, Any]:
    """Return `tools` and `tool_choice`. A conversation with calls is refused without any tool, so it names them."""
    if tools:
        return {"tools": tools, "tool_choice": {"type": dialect.tool_choice(request)}}
    called = dict.fromkeys(wire_name(call.name) for message in request.messages for call in message.calls)
    if not called:
        return {}
    gone = [{"name": name, "input_schema": {"type": "object"}} for name in called]
    return {"tools": gone, "tool_choice": {"type": "none"}}


def _tool(spec: ToolSpec) -> dict[str, Any]:
    tool: dict[str, Any] = {"name": spec.name, "input_schema": {"type": "object"} | spec.parameters}
    return tool | {"description": spec.description} if spec.description else tool


def _messages(messages: Iterable[Message], dialect: Dialect) -> list[dict[str, Any]]:
    """Return the turns, alternating, begun and ended by the user; what is blank is refused, so gone."""
    spoken = [message for message in messages if message.role != "system"]
    turns: list[dict[str, Any]] = []
    for role, turn in groupby(results_first(spoken), key=_wire_role):
        if content := [block for message in turn for block in _content(message, dialect)]:
            _extend(turns, role, content)
    if not turns or turns[0]["role"] == "assistant":
        turns.insert(0, {"role": "user", "content": _text(BEGINNING)})
    if turns[-1]["role"] == "assistant":
        turns.append({"role": "user", "content": _text(_GO_ON)})
    return turns


def _extend(turns: list[dict[str, Any]], role: str, content: list[dict[str, Any]]) -> None:
    """Add a turn, to the one before it when a turn without content stood between them."""
    if turns and turns[-1]["role"] == role:
        turns[-1]["content"].extend(content)
    else:
        turns.append({"role": role, "content": content})


def _wire_role(message: Message) -> str:
    return "assistant" if message.role == "assistant" else "user"


def _content(message: Message, dialect: Dialect) -> list[dict[str, Any]]:
    if message.role == "tool":
        return [_result(message)]
    if not message.calls and not message.text.strip():
        return []
    return [block for part in message.parts for block in _part(part, dialect)]


def _part(part: Part, dialect: Dialect) -> list[dict[str, Any]]:
    """Return what goes back of a part: nothing of what is not for this model."""
    match part:
        case TextPart():
            return _text(part.text)
        case ToolCall():
            name = wire_name(part.name)
            return [{"type": "tool_use", "id": wire_id(part.call_id), "name": name, "input": part.arguments}]
        case ThinkingPart() | OpaquePart() if dialect.thinking and part.format in THINKING:
            return [wire_block(part)]
        case _:
            return []


def _result(message: Message) -> dict[str, Any]:
    result: dict[str, Any] = {"type": "tool_result", "tool_use_id": wire_id(message.call_id)}
    if text := _text(message.text):
        result["content"] = text
    return result | {"is_error": True} if message.is_error else result


def _text(text: str) -> list[dict[str, Any]]:
    return [{"type": "text", "text": text}] if text.strip() else []


def _mark_cache(blocks: list[dict[str, Any]]) -> None:
    if blocks:
        blocks[-1] |= _CACHE
