"""Anthropic's Messages protocol: writes its requests, and reads its replies, streamed or whole."""

from collections.abc import Iterator, Set
from dataclasses import dataclass, field
from typing import Any

from pydantic_core import to_json

from orga.activities.adapters.models.dialect import Dialect
from orga.activities.adapters.models.http import END_FRAME
from orga.activities.adapters.models.kept_fields import (
    MESSAGE,
    StreamedFields,
    further_fields,
    kept_parts,
    latest_container,
    parts_with_fields,
    wire_block,
)
from orga.activities.adapters.models.media import base64_text, loaded_parts
from orga.activities.adapters.models.reply import OpenCall, frugal_usage, tool_call
from orga.activities.adapters.models.thinking import CLAUDE_MIN_TOKENS
from orga.activities.adapters.models.wire import (
    StreamReader,
    Wire,
    alternating_turns,
    cache_control,
    called_names,
    system_texts,
    wire_id,
    wire_name,
)
from orga.activities.ports import LoadedMedia, ModelRequest
from orga.workflows.types.json_text import as_count, as_object, as_objects, as_text
from orga.workflows.types.messages import FinishReason, Message, Reply
from orga.workflows.types.parts import Block, OpaquePart, Part, TextPart, ThinkingPart, ToolCall
from orga.workflows.types.tool_calls.tools import ToolSpec

THINKING = frozenset({"thinking", "redacted_thinking"})
"""Types of blocks with thinking. The part of such a block has its type as format."""

BLOCK = "messages.block"
"""The format of a part with a block of any other type."""

_FINISH_REASONS: dict[str, FinishReason] = {
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "pause_turn": "length",
    "refusal": "refusal",
}


@dataclass
class _MessageReader(StreamReader):
    _kept: dict[int, StreamedFields] = field(default_factory=dict[int, StreamedFields])
    """Blocks that are sent back unchanged, and the further fields of texts, by the block's index in the stream."""
    _calls: dict[int, OpenCall] = field(default_factory=dict[int, OpenCall])
    _container: dict[str, Any] = field(default_factory=dict[str, Any])
    """The container in which code ran. While its code waits for a call's result, a request has to name it."""
    _finish: str = ""
    _usage: dict[str, Any] = field(default_factory=dict[str, Any])

    def feed(self, frame: dict[str, Any]) -> bool:
        kind = frame.get("type")
        if kind == "error" or frame.get("error"):
            raise self._failures.from_stream_error(frame)
        index = as_count(frame.get("index"))
        if kind == "message_start":
            self._read_envelope(as_object(frame.get("message")))
        elif kind == "message" or (kind is None and "content" in frame):
            self._read_envelope(frame)
            for number, block in enumerate(as_objects(frame.get("content"))):
                self._begin_block(number, block)
            self._ended = True
        elif kind == "content_block_start":
            self._begin_block(index, as_object(frame.get("content_block")))
        elif kind == "content_block_delta":
            self._add_delta(index, as_object(frame.get("delta")))
        elif kind == "message_delta":
            self._read_envelope(as_object(frame.get("delta")) | {"usage": frame.get("usage")})
        self._ended = self._ended or kind == "message_stop"
        return self._assembly.full or frame is END_FRAME  # after `message_stop` the frames end by themselves

    def reply(self) -> Reply:
        if not (self._finish or self._ended or self._assembly.full):
            raise self._failures.bad_stream("cut off before its end")
        cached, written = self._count("cache_read_input_tokens"), self._count("cache_creation_input_tokens")
        self._assembly.add_blocks(lambda: kept_parts(MESSAGE, StreamedFields(self._container).value()))
        usage = frugal_usage(
            self._count("input_tokens") + cached + written,
            self._count("output_tokens"),
            cached_input_tokens=cached,
            thinking_tokens=as_count(as_object(self._usage.get("output_tokens_details")).get("thinking_tokens")),
        )
        return self._priced_reply(
            _FINISH_REASONS.get(self._finish, "stop"),
            usage,
            billed=self._usage.get("cost"),
            cache_write_tokens=written,
            hour_tokens=self._hour_tokens(written),
        )

    def _count(self, name: str) -> int:
        return as_count(self._usage.get(name))

    def _hour_tokens(self, written: int) -> int:
        """Return how many of the tokens that were written to the cache are kept for an hour."""
        counts = as_object(self._usage.get("cache_creation"))
        if counts:
            return min(as_count(counts.get("ephemeral_1h_input_tokens")), written)
        return written if self._request.settings.cache_ttl == "1h" else 0

    def _read_envelope(self, fields: dict[str, Any]) -> None:
        """Read the fields of the message. The counts of a later event are totals and replace earlier ones."""
        self._model = as_text(fields.get("model")) or self._model
        container = as_object(fields.get("container"))
        if name := as_text(container.get("id")):
            self._container = {"container": name, "expires_at": as_text(container.get("expires_at"))}
        self._finish = as_text(fields.get("stop_reason")) or self._finish
        counts = as_object(fields.get("usage"))
        self._usage |= {name: count for name, count in counts.items() if count is not None}

    def _begin_block(self, index: int, block: dict[str, Any]) -> None:
        kind = as_text(block.get("type"))
        if kind == "text":
            self._assembly.begin_text()
            self._keep(index, further_fields(block, _TEXT_FIELDS), "messages.text")
            self._assembly.add_text(as_text(block.get("text")))
        elif kind == "tool_use":
            fitting = self._assembly.take_within_room
            call = OpenCall(call_id=fitting(as_text(block.get("id"))), name=fitting(as_text(block.get("name"))))
            if not self._assembly.open_call(call):
                return
            self._calls[index] = call
            call.fields, call.fields_format = StreamedFields(further_fields(block, _CALL_FIELDS)), "messages.call"
            if whole := as_object(block.get("input")):
                self._assembly.add_arguments(call, to_json(whole).decode())
        elif kind:
            self._keep(index, block, "" if kind in THINKING else BLOCK)
            self._assembly.show_thinking(as_text(block.get("thinking")), index)

    def _keep(self, index: int, fields: dict[str, Any], format: str) -> None:
        """Keep fields that later deltas complete. An empty format means that they are a block with its own type."""
        kept = self._kept[index] = StreamedFields(fields)
        self._assembly.add_blocks(lambda: _kept_blocks(format, kept.value()))

    def _add_delta(self, index: int, delta: dict[str, Any]) -> None:
        kind = as_text(delta.get("type"))
        if kind == "text_delta":
            self._assembly.add_text(as_text(delta.get("text")))
        elif kind == "input_json_delta" and index in self._calls:
            self._assembly.add_arguments(self._calls[index], as_text(delta.get("partial_json")))
        elif index in self._kept:
            content_names = _DELTA_FIELDS.get(kind, delta.keys() - {"type"})
            piece = {name: value for name, value in delta.items() if name in content_names}
            self._kept[index].add({"citations": [piece["citation"]]} if "citation" in piece else piece)
            self._assembly.show_thinking(as_text(piece.get("thinking")), index)


_TEXT_FIELDS = frozenset({"type", "text"})
_CALL_FIELDS = frozenset({"type", "id", "name", "input"})
_DELTA_FIELDS = {
    "thinking_delta": {"thinking"},
    "signature_delta": {"signature"},
    "citations_delta": {"citation"},
    "input_json_delta": {"partial_json"},
}
"""The field with content, by the type of delta. In a delta of another type, every field but `type` is content."""


def _kept_blocks(format: str, data: dict[str, Any]) -> Iterator[Block]:
    """Yield the finished block. Its input arrived as pieces of JSON text, which are parsed here."""
    if text := as_text(data.pop("partial_json", "")):
        data["input"] = tool_call("", "", text).arguments
    yield from kept_parts(format, data)


def _thinking_fields(request: ModelRequest, dialect: Dialect) -> dict[str, Any]:
    """Return the fields for the effort or the number of tokens that the dialect chooses.

    Anthropic refuses a number below 1,024, and any number after calls that were made without thinking.
    """
    sent = dialect.sent_thinking(request)
    if sent.form is None:
        return {}
    if sent.effort is not None and not sent.is_off:
        return {"thinking": {"type": "adaptive"}, "output_config": {"effort": sent.effort}}
    tokens = max(sent.tokens or 0, CLAUDE_MIN_TOKENS)
    latest = [message for message in request.messages if message.role == "assistant"][-1:]
    has_thinking = dialect.thinking and any(block.format in THINKING for message in latest for block in message.blocks)
    has_calls_without_thinking = any(message.calls for message in latest) and not has_thinking
    if sent.is_off or tokens >= dialect.output_tokens(request) or has_calls_without_thinking:
        return {"thinking": {"type": "disabled"}}
    return {"thinking": {"type": "enabled", "budget_tokens": tokens}}


def _tools_fields(tools: list[dict[str, Any]], request: ModelRequest, dialect: Dialect) -> dict[str, Any]:
    """Return `tools` and `tool_choice`.

    Anthropic refuses calls in a request without tools, so the names of the called tools are sent in that case.
    """
    if tools:
        choice: dict[str, Any] = {"type": dialect.tool_choice(request)}
        if dialect.settings(request).parallel_tool_calls is False and request.tool_choice != "none":
            choice["disable_parallel_tool_use"] = True
        return {"tools": tools} if choice == {"type": "auto"} else {"tools": tools, "tool_choice": choice}
    called = [{"name": name, "input_schema": {"type": "object"}} for name in called_names(request)]
    return {"tools": called, "tool_choice": {"type": "none"}} if called else {}


def _tool_definition(spec: ToolSpec) -> dict[str, Any]:
    tool: dict[str, Any] = {"name": spec.name, "input_schema": {"type": "object"} | spec.parameters}
    return tool | {"description": spec.description} if spec.description else tool


def _message_content(message: Message, dialect: Dialect) -> list[dict[str, Any]]:
    if message.role == "tool":
        return [_tool_result_block(message)]
    parts = parts_with_fields(message.parts, "messages")
    content = [block for part, fields in parts for block in _part_blocks(part, fields, dialect)]
    return [] if all(block["type"] in THINKING for block in content) else content


def _part_blocks(part: Part, fields: dict[str, Any], dialect: Dialect) -> list[dict[str, Any]]:
    """Return the blocks that are sent for a part. There are none if only another model can read the part."""
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
    """Return the block of a text. A blank text has none, because it would be refused."""
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
    reader = _MessageReader

    def absent_settings(self, model: str) -> Set[str]:
        return frozenset({"seed"})

    def dialect(self, model: str) -> Dialect:
        """Return the same dialect for all models. Older models refuse parts of it: before Claude 4.5, any schema."""
        levels = ("none", "low", "medium", "high", "xhigh", "max")
        return Dialect(
            sure_schema=True, strict_schema=True, thinking_forms=("effort", "tokens"), thinking_levels=levels
        )

    def body(self, request: ModelRequest, dialect: Dialect) -> dict[str, Any]:
        """Return the body with two prompt-cache breakpoints.

        The first one is after the tools and instructions, which are equal in every call. The second one is at the
        end of the conversation.
        """
        system = [_text_block(text) for text in system_texts(request)]
        tools = [_tool_definition(spec) for spec in request.tools]
        turns = alternating_turns(request.messages, lambda message: _message_content(message, dialect), _text_block)
        messages = [{"role": "assistant" if is_reply else "user", "content": content} for is_reply, content in turns]
        settings = dialect.settings(request)
        _mark_cache(system or tools, settings.cache_ttl)
        _mark_cache([block for block in turns[-1].content if block["type"] not in THINKING], settings.cache_ttl)
        body: dict[str, Any] = {
            "model": request.model,
            "messages": messages,
            "max_tokens": dialect.output_tokens(request),
            "stream": True,
        }
        if system:
            body["system"] = system
        if dialect.kept_fields and (container := latest_container(request.messages).id):
            body["container"] = container
        body |= settings.given("temperature", "top_p", "service_tier")
        if stops := [stop for stop in settings.stop or () if stop.strip()]:
            body["stop_sequences"] = stops
        thinking = _thinking_fields(request, dialect)
        if request.output_schema is not None:
            form = {"format": {"type": "json_schema", "schema": request.output_schema}}
            thinking["output_config"] = thinking.get("output_config", {}) | form
        return body | thinking | _tools_fields(tools, request, dialect)
