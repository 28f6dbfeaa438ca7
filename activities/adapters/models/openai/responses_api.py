"""OpenAI's Responses protocol. The provider stores nothing, so each request sends everything again.

Reasoning arrives encrypted, as a separate item before the calls that it led to. It is sent back unchanged and
in the same place. Only `response.output_item.done` contains such an item completely.
"""

from collections.abc import Iterator, Set
from dataclasses import dataclass, field
from typing import Any

from pydantic_core import to_json

from orga.activities.adapters.models.dialect import Dialect
from orga.activities.adapters.models.http import END_FRAME
from orga.activities.adapters.models.kept_fields import (
    StreamedFields,
    further_fields,
    kept_parts,
    parts_with_fields,
    wire_block,
)
from orga.activities.adapters.models.media import data_url, file_name
from orga.activities.adapters.models.openai.chat_completions import function_definition, system_text, tool_choice_fields
from orga.activities.adapters.models.reply import OpenCall, frugal_usage
from orga.activities.adapters.models.schema_shape import is_strict
from orga.activities.adapters.models.wire import StreamReader, Wire, wire_id, wire_name, with_results_first
from orga.activities.ports import LoadedMedia, ModelRequest
from orga.workflows.types.json_text import FINAL_ANSWER, as_count, as_object, as_objects, as_text
from orga.workflows.types.messages import FinishReason, Message, Reply
from orga.workflows.types.parts import Block, OpaquePart, ResultPart, TextPart, ToolCall

REASONING = "reasoning"
"""The format of a part with an item of reasoning."""

_ITEM = "responses.item"
"""The format of a part with any other item."""
_KEPT_FORMATS = {REASONING: "", "message": "responses.text"}
"""Formats of parts by the kind of their item, if they are not `_ITEM`. "" means the type of the item."""
_READ_FIELDS = frozenset({"type", "id", "status", "role", "content", "call_id", "name", "arguments"})
"""Fields of a text or a call that need not be kept: they are read, or no request needs them."""

_MIN_OUTPUT_TOKENS = 16
"""OpenAI refuses less."""


def _input_items(message: Message, dialect: Dialect) -> list[dict[str, Any]]:
    """Return the items of one message. OpenAI refuses reasoning that nothing follows, so it is left out."""
    if message.role == "system":
        return []
    if message.role == "tool":
        return [{"type": "function_call_output", "call_id": wire_id(message.call_id), "output": _content(message)}]
    if message.role == "user":
        return [{"role": "user", "content": _content(message)}]
    items: list[dict[str, Any]] = []
    for part, fields in parts_with_fields(message.parts, "responses"):
        more = fields if dialect.kept_fields else {}
        match part:
            case TextPart() if part.text:
                items.append(more | {"role": "assistant", "content": part.text})
            case ToolCall():
                arguments = to_json(part.arguments).decode()
                call = {"type": "function_call", "call_id": wire_id(part.call_id), "name": wire_name(part.name)}
                items.append(more | call | {"arguments": arguments})
            case OpaquePart() if dialect.thinking and part.format == REASONING:
                items.append(wire_block(part))
            case OpaquePart() if dialect.kept_fields and part.format == _ITEM:
                items.append(dict(part.data))
            case _:
                pass
    while items and items[-1].get("type") == REASONING and not message.calls:
        items.pop()
    return items


def _content(message: Message) -> str | list[dict[str, Any]]:
    if not message.media:
        return message.text
    content: list[dict[str, Any]] = []
    for part in message.parts:
        if isinstance(part, (TextPart, ResultPart)) and part.text:
            content.append({"type": "input_text", "text": part.text})
        elif isinstance(part, LoadedMedia) and part.kind == "image":
            content.append({"type": "input_image", "image_url": data_url(part), "detail": "auto"})
        elif isinstance(part, LoadedMedia):
            content.append({"type": "input_file", "filename": file_name(part), "file_data": data_url(part)})
    return content


@dataclass
class _OutputItem:
    kind: str
    item_id: str
    call: OpenCall | None = None
    kept: dict[str, Any] = field(default_factory=dict[str, Any])
    """The fields that later requests send back unchanged: all of an item, but only the further fields of a text."""
    has_text: bool = False
    has_thinking: bool = False


@dataclass
class ResponseReader(StreamReader):
    """Reads the events of one response, or a whole response if a server does not stream."""

    _items: dict[object, _OutputItem] = field(default_factory=dict[object, _OutputItem])
    """The items by number and by name, or by type if they have neither."""
    _response: dict[str, Any] = field(default_factory=dict[str, Any])
    _status: str = ""
    _refused: bool = False

    def feed(self, frame: dict[str, Any]) -> bool:
        if frame is END_FRAME:
            self._ended = True
            return False
        kind = as_text(frame.get("type"))
        is_whole = frame.get("object") == "response" or (not kind and "output" in frame)
        response = frame if is_whole else as_object(frame.get("response"))
        if error := frame.get("error") or response.get("error"):
            raise self._failures.from_stream_error(error)
        if kind == "error":
            raise self._failures.from_stream_error(frame)
        if response and kind in {"", "response.completed", "response.incomplete", "response.failed"}:
            return self._read_whole_response(response)
        wire_item = as_object(frame.get("item"))
        if kind == "response.output_item.added":
            self._find_or_begin_item(frame, wire_item, is_new=True)
        elif kind == "response.output_item.done":
            self._complete_item(self._find_or_begin_item(frame, wire_item), wire_item)
        elif kind in {"response.output_text.delta", "response.refusal.delta"}:
            item = self._find_or_begin_item(frame, {"type": "message"})
            self._add_text(item, frame.get("delta"), is_refusal="refusal" in kind)
        elif kind in _THINKING_INDEXES:
            item = self._find_or_begin_item(frame, {"type": REASONING})
            self._show_thinking(item, frame.get("delta"), as_count(frame.get(_THINKING_INDEXES[kind])))
        elif kind == "response.function_call_arguments.delta":
            item = self._find_or_begin_item(frame, {"type": "function_call"})
            if item.call is not None:
                self._assembly.add_arguments(item.call, as_text(frame.get("delta")))
        return self._assembly.full

    def reply(self) -> Reply:
        if not (self._status or (self._ended and self._items) or self._assembly.full):
            raise self._failures.bad_stream("cut off before its end")
        usage = as_object(self._response.get("usage"))
        details = as_object(usage.get("input_tokens_details"))
        counted = frugal_usage(
            as_count(usage.get("input_tokens")),
            as_count(usage.get("output_tokens")),
            as_count(details.get("cached_tokens")),
            as_count(as_object(usage.get("output_tokens_details")).get("reasoning_tokens")),
        )
        self._model = as_text(self._response.get("model")) or self._model
        written = as_count(details.get("cache_write_tokens"))
        return self._priced_reply(self._finish_reason(), counted, billed=usage.get("cost"), cache_write_tokens=written)

    def _finish_reason(self) -> FinishReason:
        if self._status in {"failed", "cancelled"}:
            raise self._failures.bad_stream(f"broken off, {self._status}")
        if self._refused:
            return "refusal"
        if self._assembly.full:
            return "length"
        if self._status == "incomplete":
            reason = as_text(as_object(self._response.get("incomplete_details")).get("reason"))
            return "content_filter" if reason == "content_filter" else "length"
        if self._status != "completed" and not all(call.is_whole() for call in self._assembly.calls):
            raise self._failures.bad_stream("cut off within a call")
        return "stop"

    def _read_whole_response(self, response: dict[str, Any]) -> bool:
        """Read a whole response, which repeats the items of its events.

        If no event contained a text or a call, all items are read. Otherwise only items of other types are completed,
        if no event has completed them.
        """
        self._response = response
        self._status = as_text(response.get("status")) or "completed"
        is_unread = not self._assembly.calls and not any(item.has_text for item in self._items.values())
        for index, item in enumerate(as_objects(response.get("output"))):
            begun = self._items.get(as_text(item.get("id")))
            if is_unread:
                self._complete_item(self._find_or_begin_item({"output_index": index}, item), item)
            elif begun is not None and not begun.kept and begun.call is None:
                self._complete_item(begun, item)
        return True

    def _find_or_begin_item(self, frame: dict[str, Any], item: dict[str, Any], *, is_new: bool = False) -> _OutputItem:
        """Return the item of an event. The first event of an item begins it. `is_new`: the event announces a new item.

        Servers number items, name them, or both. Some number all items 0, and some change an item's name in between.
        """
        names = [frame.get("output_index"), frame.get("item_id"), item.get("id")]
        keys = [name for name in names if isinstance(name, (int, str))] or [as_text(item.get("type"))]
        begun = next((self._items[key] for key in keys if key in self._items), None)
        if begun is None or (is_new and begun.item_id != as_text(item.get("id"))):
            begun = self._begin_item(item)
        self._items |= dict.fromkeys(keys, begun)
        return begun

    def _begin_item(self, item: dict[str, Any]) -> _OutputItem:
        begun = _OutputItem(as_text(item.get("type")), as_text(item.get("id")))
        if begun.kind == "function_call":
            call = OpenCall(
                call_id=as_text(item.get("call_id")),
                name=self._assembly.take_within_room(as_text(item.get("name"))),
                fields=StreamedFields(further_fields(item, _READ_FIELDS)),
                fields_format="responses.call",
            )
            begun.call = call if self._assembly.open_call(call) else None
            return begun
        if begun.kind == "message":
            self._assembly.begin_text()
            begun.kept = further_fields(item, _READ_FIELDS)
        self._assembly.add_blocks(lambda: _kept_blocks(begun))
        return begun

    def _complete_item(self, begun: _OutputItem, item: dict[str, Any]) -> None:
        """Read the complete item, which contains what its events may have left out."""
        if item.get("type") == "image_generation_call":
            self._assembly.add_image(as_text(item.get("result")))
        elif begun.call is not None:
            call, arguments = begun.call, as_text(item.get("arguments"))
            call.call_id = as_text(item.get("call_id")) or call.call_id
            call.fields = StreamedFields(further_fields(item, _READ_FIELDS))
            call.name = call.name or self._assembly.take_within_room(as_text(item.get("name")))
            if arguments.strip() and arguments != "".join(call.arguments):
                call.arguments.clear()
                self._assembly.add_arguments(call, arguments)
        elif begun.kind == "message":
            begun.kept |= further_fields(item, _READ_FIELDS)
            parts = () if begun.has_text else as_objects(item.get("content"))
            for part in parts:
                is_refusal = part.get("type") == "refusal"
                self._add_text(begun, part.get("refusal" if is_refusal else "text"), is_refusal=is_refusal)
        elif begun.kind == REASONING:
            thoughts = () if begun.has_thinking else as_objects(item.get("summary") or item.get("content"))
            for index, part in enumerate(thoughts):
                self._show_thinking(begun, part.get("text"), index)
            if item.get("encrypted_content") or item.get("content"):  # otherwise nobody could read it again
                begun.kept = item
        elif begun.kind != "function_call":  # a call that had no room is dropped
            begun.kept = item

    def _add_text(self, item: _OutputItem, piece: object, *, is_refusal: bool) -> None:
        item.has_text = True
        self._refused = self._refused or is_refusal
        self._assembly.add_text(as_text(piece))

    def _show_thinking(self, item: _OutputItem, piece: object, index: int) -> None:
        item.has_thinking = True
        self._assembly.show_thinking(as_text(piece), (item.item_id, index))


_THINKING_INDEXES = {
    "response.reasoning_summary_text.delta": "summary_index",
    "response.reasoning_text.delta": "content_index",
}
"""Events with a piece of thinking, and the key for the index of the part that the piece belongs to."""


def _kept_blocks(item: _OutputItem) -> Iterator[Block]:
    yield from kept_parts(_KEPT_FORMATS.get(item.kind, _ITEM), StreamedFields(item.kept).value())


class OpenAIResponses(Wire):
    path = "/responses"
    name_pattern = absence_pattern = r"/responses\b|\bresponses api\b"
    reader = ResponseReader

    def absent_settings(self, model: str) -> Set[str]:
        return frozenset({"seed", "stop", "cache_ttl"})

    def dialect(self, model: str) -> Dialect:
        return Dialect(sure_schema=True, strict_tools=True)

    def body(self, request: ModelRequest, dialect: Dialect) -> dict[str, Any]:
        body: dict[str, Any] = {
            "model": request.model,
            "input": [item for each in with_results_first(request.messages) for item in _input_items(each, dialect)],
            "stream": True,
            "store": False,
            "max_output_tokens": max(dialect.output_tokens(request), _MIN_OUTPUT_TOKENS),
        }
        if text := system_text(request):
            body["instructions"] = text
        if dialect.encrypted_reasoning:
            body["include"] = ["reasoning.encrypted_content"]
        body |= dialect.settings(request).given("temperature", "top_p", "service_tier")
        if (effort := dialect.sent_thinking(request).effort) is not None:
            body["reasoning"] = {"effort": effort}
        if (schema := request.output_schema) is not None:
            form = {"type": "json_schema", "name": FINAL_ANSWER, "schema": schema, "strict": is_strict(schema)}
            body["text"] = {"format": form}
        if request.tools:
            body["tools"] = [
                {"type": "function", **function_definition(spec)}
                | {"strict": dialect.strict_tools and is_strict(spec.parameters)}
                for spec in request.tools
            ]
            body |= tool_choice_fields(request, dialect)
        return body
