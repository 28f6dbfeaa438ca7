"""A reply read from Anthropic's message events, or from a whole message where a server doesn't stream."""

from collections.abc import Callable
from functools import partial
from typing import Any

from pydantic_core import to_json

from orga.activities.adapters.models.anthropic_request import THINKING
from orga.activities.adapters.models.assembly import Assembly, frugal_usage
from orga.activities.adapters.models.calls import OpenCall
from orga.activities.adapters.models.failures import Failures
from orga.activities.adapters.models.json_shape import as_count, as_object, as_objects, as_text
from orga.activities.adapters.models.pricing import cost_usd
from orga.activities.adapters.models.stream_http import END
from orga.activities.ports import ModelRequest
from orga.workflows.types.messages import FinishReason, Reply

_FINISH: dict[str, FinishReason] = {
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "pause_turn": "length",
    "refusal": "refusal",
}
_STREAMED = {"text_delta": "text", "thinking_delta": "thinking", "signature_delta": "signature"}


class MessageReader:
    """Reads the events of one message."""

    def __init__(
        self, provider: str, request: ModelRequest, on_text: Callable[[str], None], failures: Failures
    ) -> None:
        self._provider = provider
        self._request = request
        self._failures = failures
        self._assembly = Assembly(request, on_text)
        self._thinking: dict[int, dict[str, Any]] = {}
        self._pieces: dict[tuple[int, str], list[str]] = {}
        self._calls: dict[int, OpenCall] = {}
        self._finish = ""
        self._ended = False
        self._model = request.model
        self._usage: dict[str, Any] = {}

    def feed(self, frame: dict[str, Any]) -> bool:
        """Take one event; see `StreamReader`."""
        kind = frame.get("type")
        if kind == "error" or frame.get("error"):
            raise self._failures.in_stream(frame)
        index = as_count(frame.get("index"))
        if kind == "message_start":
            self._envelope(as_object(frame.get("message")))
        elif kind == "message" or (kind is None and "content" in frame):
            self._whole(frame)
        elif kind == "content_block_start":
            self._block(index, as_object(frame.get("content_block")))
        elif kind == "content_block_delta":
            self._delta(index, as_object(frame.get("delta")))
        elif kind == "message_delta":
            self._envelope(as_object(frame.get("delta")) | {"usage": frame.get("usage")})
        self._ended = self._ended or kind == "message_stop"
        return self._assembly.full or frame is END

    def reply(self) -> Reply:
        """Return the reply; see `StreamReader`."""
        if not (self._finish or self._ended or self._assembly.full):
            raise self._failures.bad_stream("cut off before its end")
        for (index, field), pieces in self._pieces.items():
            self._thinking[index][field] = "".join(pieces)
        cached, written = self._count("cache_read_input_tokens"), self._count("cache_creation_input_tokens")
        usage = frugal_usage(
            self._count("input_tokens") + cached + written, self._count("output_tokens"), cached_input_tokens=cached
        )
        price = partial(cost_usd, self._provider, self._request.model, cache_write_tokens=written)
        return self._assembly.reply(_FINISH.get(self._finish, "stop"), usage, self._model, price)

    def _count(self, name: str) -> int:
        return as_count(self._usage.get(name))

    def _envelope(self, fields: dict[str, Any]) -> None:
        """Take model, stop reason and usage; the counts of a later event are totals and replace earlier ones."""
        self._model = as_text(fields.get("model")) or self._model
        self._finish = as_text(fields.get("stop_reason")) or self._finish
        counts = as_object(fields.get("usage"))
        self._usage |= {name: count for name, count in counts.items() if count is not None}

    def _whole(self, message: dict[str, Any]) -> None:
        self._envelope(message)
        for index, block in enumerate(as_objects(message.get("content"))):
            self._block(index, block)
        self._ended = True

    def _block(self, index: int, block: dict[str, Any]) -> None:
        kind = as_text(block.get("type"))
        if kind == "text":
            self._assembly.begin_text()
            self._assembly.add_text(as_text(block.get("text")))
        elif kind == "tool_use":
            fitting = self._assembly.fitting
            call = OpenCall(call_id=fitting(as_text(block.get("id"))), name=fitting(as_text(block.get("name"))))
            if not self._assembly.open_call(call):
                return
            self._calls[index] = call
            if whole := as_object(block.get("input")):
                self._assembly.add_arguments(call, to_json(whole).decode())
        elif kind in THINKING:
            self._thinking[index] = dict(block)
            self._assembly.add_block(self._thinking[index])

    def _delta(self, index: int, delta: dict[str, Any]) -> None:
        kind = as_text(delta.get("type"))
        if kind == "text_delta":
            self._assembly.add_text(as_text(delta.get("text")))
        elif kind == "input_json_delta" and index in self._calls:
            self._assembly.add_arguments(self._calls[index], as_text(delta.get("partial_json")))
        elif kind in _STREAMED and index in self._thinking:
            field = _STREAMED[kind]
            if (index, field) not in self._pieces:
                self._pieces[index, field] = [as_text(self._thinking[index].get(field))]
            self._pieces[index, field].append(as_text(delta.get(field)))
