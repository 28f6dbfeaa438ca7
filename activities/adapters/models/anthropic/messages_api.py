"""Requests of Anthropic's Messages protocol."""

from collections.abc import Set
from dataclasses import dataclass
from typing import Any

from orga.activities.adapters.models.anthropic.messages_reply import BLOCK, THINKING, MessageReader
from orga.activities.adapters.models.dialect import Dialect
from orga.activities.adapters.models.kept_fields import latest_container, parts_with_fields, wire_block
from orga.activities.adapters.models.media import base64_text, loaded_parts
from orga.activities.adapters.models.thinking import CLAUDE_MIN_TOKENS
from orga.activities.adapters.models.wire import (
    Wire,
    alternating_turns,
    cache_control,
    called_names,
    system_texts,
    wire_id,
    wire_name,
)
from orga.activities.ports import LoadedMedia, ModelRequest
from orga.workflows.types.messages import Message
from orga.workflows.types.parts import OpaquePart, Part, TextPart, ThinkingPart, ToolCall
from orga.workflows.types.tool_calls.tools import ToolSpec


def messages_body(request: ModelRequest, dialect: Dialect) -> dict[str, Any]:
    """Return the body of a streamed message, with its two prompt-cache breakpoints.

    One is after the part that is equal in every call (tools and system), and one after the conversation so far.
    """
    system = [_text_block(text) for text in system_texts(request)]
    tools = [_tool_definition(spec) for spec in request.tools]
    messages = _messages(request, dialect)
    settings = dialect.settings(request)
    _mark_cache(system or tools, settings.cache_ttl)
    _mark_cache([block for block in messages[-1]["content"] if block["type"] not in THINKING], settings.cache_ttl)
    body: dict[str, Any] = {
        "model": request.model,
        "messages": messages,
        "max_tokens": dialect.output_tokens(request),
        "stream": True,
    }
    if system:
        body["system"] = system
    if dialect.kept_fields and (container := latest_container(request.messages)[0]):
        body["container"] = container
    body |= settings.given("temperature", "top_p", "service_tier")
    if stops := [stop for stop in settings.stop or () if stop.strip()]:
        body["stop_sequences"] = stops
    thinking = _thinking_fields(request, dialect)
    if request.output_schema is not None:
        form = {"format": {"type": "json_schema", "schema": request.output_schema}}
        thinking["output_config"] = thinking.get("output_config", {}) | form
    return body | thinking | _tools_fields(tools, request, dialect)


def _thinking_fields(request: ModelRequest, dialect: Dialect) -> dict[str, Any]:
    """Return `thinking` and the effort. Older models accept only a number of tokens.

    A number is refused below 1,024, and also if a call in the current turn was made without thinking.
    """
    sent = dialect.sent_thinking(request)
    if sent.form is None:
        return {}
    if sent.effort is not None and not sent.is_off:
        return {"thinking": {"type": "adaptive"}, "output_config": {"effort": sent.effort}}
    tokens = max(sent.tokens or 0, CLAUDE_MIN_TOKENS)
    if sent.is_off or tokens >= dialect.output_tokens(request) or _is_begun_without_thinking(request, dialect):
        return {"thinking": {"type": "disabled"}}
    return {"thinking": {"type": "enabled", "budget_tokens": tokens}}


def _is_begun_without_thinking(request: ModelRequest, dialect: Dialect) -> bool:
    """Return whether the latest reply has calls, and no thinking that is sent back."""
    latest = [message for message in request.messages if message.role == "assistant"][-1:]
    thought = [block for message in latest for block in message.blocks if block.format in THINKING]
    return any(message.calls for message in latest) and not (dialect.thinking and thought)


def _tools_fields(tools: list[dict[str, Any]], request: ModelRequest, dialect: Dialect) -> dict[str, Any]:
    """Return `tools` and `tool_choice`. A conversation with calls is refused without tools, so its tools are named."""
    if tools:
        choice: dict[str, Any] = {"type": dialect.tool_choice(request)}
        if dialect.settings(request).parallel_tool_calls is False and request.tool_choice != "none":
            choice["disable_parallel_tool_use"] = True
        return {"tools": tools} if choice == {"type": "auto"} else {"tools": tools, "tool_choice": choice}
    gone = [{"name": name, "input_schema": {"type": "object"}} for name in called_names(request)]
    return {"tools": gone, "tool_choice": {"type": "none"}} if gone else {}


def _tool_definition(spec: ToolSpec) -> dict[str, Any]:
    tool: dict[str, Any] = {"name": spec.name, "input_schema": {"type": "object"} | spec.parameters}
    return tool | {"description": spec.description} if spec.description else tool


def _messages(request: ModelRequest, dialect: Dialect) -> list[dict[str, Any]]:
    turns = alternating_turns(request.messages, lambda message: _message_content(message, dialect), _text_block)
    return [{"role": "assistant" if is_reply else "user", "content": content} for is_reply, content in turns]


def _message_content(message: Message, dialect: Dialect) -> list[dict[str, Any]]:
    if message.role == "tool":
        return [_tool_result_block(message)]
    parts = parts_with_fields(message.parts, "messages")
    content = [block for part, fields in parts for block in _part_blocks(part, fields, dialect)]
    return [] if all(block["type"] in THINKING for block in content) else content


def _part_blocks(part: Part, fields: dict[str, Any], dialect: Dialect) -> list[dict[str, Any]]:
    """Return the blocks of a part that are sent back. A part for another model has none."""
    more = fields if dialect.kept_fields else {}
    match part:
        case TextPart():
            return [more | block for block in _text_blocks(part.text)]
        case ToolCall():
            name = wire_name(part.name)
            return [more | {"type": "tool_use", "id": wire_id(part.call_id), "name": name, "input": part.arguments}]
        case ThinkingPart() | OpaquePart() if dialect.thinking and part.format in THINKING:
            return [wire_block(part)]
        case OpaquePart() if dialect.kept_fields and part.format == BLOCK:
            return [dict(part.data)]
        case LoadedMedia():
            return [_media_block(part)]
        case _:
            return []


def _media_block(part: LoadedMedia) -> dict[str, Any]:
    source = {"type": "base64", "media_type": part.media_type, "data": base64_text(part)}
    titled = {"title": part.name} if part.kind == "document" and part.name else {}
    return {"type": part.kind, "source": source, **titled}


def _tool_result_block(message: Message) -> dict[str, Any]:
    result: dict[str, Any] = {"type": "tool_result", "tool_use_id": wire_id(message.call_id)}
    if content := [*_text_blocks(message.text), *map(_media_block, loaded_parts(message))]:
        result["content"] = content
    return result | {"is_error": True} if message.is_error else result


def _text_blocks(text: str) -> list[dict[str, Any]]:
    """Return the block of a text, and none for a blank one, because it is refused."""
    return [_text_block(text)] if text.strip() else []


def _text_block(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


def _mark_cache(blocks: list[dict[str, Any]], ttl: str | None) -> None:
    if blocks:
        blocks[-1]["cache_control"] = cache_control(ttl)


@dataclass(frozen=True)
class AnthropicMessages(Wire):
    provider: str = "anthropic"
    path = "/messages"
    name_pattern = "/messages"
    reader = MessageReader

    def absent_settings(self, model: str) -> Set[str]:
        return frozenset({"seed"})

    def dialect(self, model: str) -> Dialect:
        """Return one dialect for all models. A model may refuse it, as those before Claude 4.5 refuse a schema."""
        levels = ("none", "low", "medium", "high", "xhigh", "max")
        return Dialect(
            sure_schema=True, strict_schema=True, thinking_forms=("effort", "tokens"), thinking_levels=levels
        )

    def body(self, request: ModelRequest, dialect: Dialect) -> dict[str, Any]:
        return messages_body(request, dialect)
