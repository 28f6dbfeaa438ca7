"""Reads a streamed or whole reply of Anthropic's Messages protocol."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from pydantic_core import to_json

from orga.activities.adapters.models.http import END_FRAME
from orga.activities.adapters.models.kept_fields import MESSAGE, StreamedFields, further_fields, kept_parts
from orga.activities.adapters.models.pricing import reply_cost_usd
from orga.activities.adapters.models.reply import OpenCall, frugal_usage, tool_call
from orga.activities.adapters.models.wire import StreamReader
from orga.workflows.types.json_text import as_count, as_object, as_objects, as_text
from orga.workflows.types.messages import FinishReason, Reply
from orga.workflows.types.parts import Block

THINKING = frozenset({"thinking", "redacted_thinking"})
BLOCK = "messages.block"

_FINISH_REASONS: dict[str, FinishReason] = {
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "pause_turn": "length",
    "refusal": "refusal",
}


@dataclass
class MessageReader(StreamReader):
    """Reads the events of one message."""

    _kept: dict[int, StreamedFields] = field(default_factory=dict[int, StreamedFields])
    """Blocks that go back as they came, and the further fields of texts and calls."""
    _calls: dict[int, OpenCall] = field(default_factory=dict[int, OpenCall])
    _container: dict[str, Any] = field(default_factory=dict[str, Any])
    """The container in which code ran. A request is refused without its id while this code waits for a call."""
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
            self._read_whole_message(frame)
        elif kind == "content_block_start":
            self._begin_block(index, as_object(frame.get("content_block")))
        elif kind == "content_block_delta":
            self._add_delta(index, as_object(frame.get("delta")))
        elif kind == "message_delta":
            self._read_envelope(as_object(frame.get("delta")) | {"usage": frame.get("usage")})
        self._ended = self._ended or kind == "message_stop"
        return self._assembly.full or frame is END_FRAME

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
        price = partial(
            reply_cost_usd,
            self._provider,
            self._request.model,
            billed=self._usage.get("cost"),
            cache_write_tokens=written,
            hour_tokens=self._hour_tokens(written),
        )
        return self._assembly.reply(_FINISH_REASONS.get(self._finish, "stop"), usage, self._model, price)

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

    def _read_whole_message(self, message: dict[str, Any]) -> None:
        self._read_envelope(message)
        for index, block in enumerate(as_objects(message.get("content"))):
            self._begin_block(index, block)
        self._ended = True

    def _begin_block(self, index: int, block: dict[str, Any]) -> None:
        kind = as_text(block.get("type"))
        if kind == "text":
            self._assembly.begin_text()
            self._keep(index, further_fields(block, _TEXT_FIELDS), "messages.text")
            self._assembly.add_text(as_text(block.get("text")))
        elif kind == "tool_use":
            fitting = self._assembly.take_fitting
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
        kept = self._kept[index] = StreamedFields(fields)
        self._assembly.add_blocks(lambda: _kept_blocks(format, kept.value()))

    def _add_delta(self, index: int, delta: dict[str, Any]) -> None:
        kind = as_text(delta.get("type"))
        if kind == "text_delta":
            self._assembly.add_text(as_text(delta.get("text")))
        elif kind == "input_json_delta" and index in self._calls:
            self._assembly.add_arguments(self._calls[index], as_text(delta.get("partial_json")))
        elif index in self._kept:
            piece = {
                key: value for key, value in delta.items() if key in _DELTA_FIELDS.get(kind, delta.keys() - {"type"})
            }
            self._kept[index].add({"citations": [piece["citation"]]} if "citation" in piece else piece)
            self._assembly.show_thinking(as_text(piece.get("thinking")), index)


_TEXT_FIELDS, _CALL_FIELDS = frozenset({"type", "text"}), frozenset({"type", "id", "name", "input"})
_DELTA_FIELDS = {
    "thinking_delta": {"thinking"},
    "signature_delta": {"signature"},
    "citations_delta": {"citation"},
    "input_json_delta": {"partial_json"},
}
"""The field of each known delta. All fields of an unknown one are pieces of its block."""


def _kept_blocks(format: str, data: dict[str, Any]) -> Iterator[Block]:
    """Yield a block of the stream. Its input comes as pieces of JSON."""
    if text := as_text(data.pop("partial_json", "")):
        data["input"] = tool_call("", "", text).arguments
    yield from kept_parts(format, data)
