"""Reads a reply of Chat Completions: text, calls, finish reason and reasoning, streamed or whole."""

from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Literal

from pydantic_core import to_json

from orga.activities.adapters.models.http import END_FRAME
from orga.activities.adapters.models.kept_fields import (
    StreamedFields,
    file_annotations,
    file_parts,
    further_call_fields,
    further_message_fields,
    message_parts,
    thinking_chunks,
)
from orga.activities.adapters.models.media import MAX_REQUEST_ITEMS
from orga.activities.adapters.models.pricing import reply_cost_usd
from orga.activities.adapters.models.reply import OpenCall, ReplyAssembly, frugal_usage
from orga.activities.adapters.models.wire import StreamReader
from orga.workflows.types.json_text import as_count, as_object, as_objects, as_text
from orga.workflows.types.messages import FinishReason, Reply
from orga.workflows.types.models.usage import Usage

_SHOWN_THINKING = ("reasoning_content", "reasoning", "thinking")
"""Fields with a piece of thinking. Servers that know two of them write the same text in both."""

ReplyEnding = FinishReason | Literal["failed", "broken_off", "unknown"]

_ENDINGS: dict[str, ReplyEnding] = {
    "stop": "stop",
    "end": "stop",
    "end_turn": "stop",
    "eos": "stop",
    "eos_token": "stop",
    "stop_sequence": "stop",
    "complete": "stop",
    "completed": "stop",
    "tool_call": "stop",
    "tool_calls": "stop",
    "tool_use": "stop",
    "function_call": "stop",
    "length": "length",
    "max_length": "length",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "model_length": "length",
    "repetition": "length",
    "blocklist": "content_filter",
    "content_filter": "content_filter",
    "function_call_filter": "content_filter",
    "prohibited_content": "content_filter",
    "recitation": "content_filter",
    "safety": "content_filter",
    "sensitive": "content_filter",
    "spii": "content_filter",
    "refusal": "refusal",
    "error": "failed",
    "abort": "broken_off",
    "aborted": "broken_off",
    "canceled": "broken_off",
    "cancelled": "broken_off",
    "insufficient_system_resource": "broken_off",
    "network_error": "broken_off",
}


def reply_ending(reason: str) -> ReplyEnding:
    """Return the meaning of `reason`. Gemini writes one with a detail: `function_call_filter: DETAIL`."""
    return _ENDINGS.get(reason.partition(":")[0].strip().lower(), "unknown")


@dataclass(frozen=True)
class _CallDelta:
    index: int | None
    call_id: str
    name: str
    arguments: str
    has_arguments: bool


def add_call_delta(assembly: ReplyAssembly, entry: dict[str, Any], *, is_streamed: bool = True) -> OpenCall | None:
    """Add one entry of `tool_calls` to the reply. Return its call, or None if there are too many.

    Arguments may be text or, against the protocol, an object. In a reply that is not streamed, each entry is a separate
    call.
    """
    delta = _call_delta(entry)
    call = _continued_call(assembly.calls, delta) if is_streamed else None
    if call is None:
        call = OpenCall(index=delta.index, fields=StreamedFields(may_repeat=True))
        if not assembly.open_call(call):
            return None
    call.call_id = call.call_id or assembly.take_fitting(delta.call_id)
    if delta.name != call.name:
        call.name += assembly.take_fitting(delta.name)
    assembly.add_arguments(call, delta.arguments)
    return call


def _call_delta(entry: dict[str, Any]) -> _CallDelta:
    function, index = as_object(entry.get("function")), entry.get("index")
    arguments = function.get("arguments")
    text = arguments if isinstance(arguments, str) else to_json(arguments).decode() if arguments else ""
    return _CallDelta(
        index=index if isinstance(index, int) else None,
        call_id=as_text(entry.get("id")),
        name=as_text(function.get("name")),
        arguments=text,
        has_arguments=bool(text.strip()) or isinstance(arguments, dict),
    )


def _continued_call(calls: list[OpenCall], delta: _CallDelta) -> OpenCall | None:
    """Return the call that `delta` continues, or None if it begins a new one."""
    if delta.index is not None:
        matching = [call for call in calls if call.index == delta.index]
    elif delta.call_id:
        matching = [call for call in calls if call.call_id == delta.call_id]
    else:
        matching = [] if delta.name else calls
    same_id = [call for call in matching if delta.call_id and call.call_id == delta.call_id]
    latest = (same_id or matching)[-1:]
    return next((call for call in latest if not _begins_new_call(call, delta)), None)


def _begins_new_call(call: OpenCall, delta: _CallDelta) -> bool:
    """Return whether a delta with the number of `call` begins another call: some servers number every call 0.

    Names may come in pieces, or again with every piece of the arguments. Arguments may begin with the placeholder `{}`.
    """
    if not delta.name or not call.name:
        return False
    if call.call_id and delta.call_id and call.call_id != delta.call_id:
        return True
    if delta.name != call.name:
        return any(call.arguments) or (delta.has_arguments and not call.call_id)
    is_complete = "".join(call.arguments).strip() != "{}" and call.is_whole()
    return delta.has_arguments and not (call.call_id and delta.call_id) and is_complete


@dataclass
class ChatReader(StreamReader):
    _fields: StreamedFields | None = None
    """The further fields of the message."""
    _files: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    _finish: str = ""
    _refused: bool = False
    _answered: bool = False
    _usage: dict[str, Any] = field(default_factory=dict[str, Any])

    def feed(self, frame: dict[str, Any]) -> bool:
        if frame is END_FRAME:
            self._ended = True
            return False
        if frame.get("error"):
            raise self._failures.from_stream_error(frame)
        self._model = as_text(frame.get("model")) or self._model
        choices = as_objects(frame.get("choices"))
        for holder in (*choices[:1], as_object(frame.get("x_groq")), frame):
            self._usage = as_object(holder.get("usage")) or self._usage
        for choice in choices:
            self._answered = True
            if not choice.get("index"):
                self._read_choice(choice)
        return self._assembly.full

    def reply(self) -> Reply:
        if not (self._finish or (self._ended and self._answered) or self._assembly.full):
            raise self._failures.bad_stream("cut off before its end")
        finish = self._finish_reason()
        if self._files:
            self._assembly.add_blocks(lambda: file_parts(self._files, self._request.messages))
        return self._assembly.reply(finish, _chat_usage(self._usage), self._model, self._cost)

    def _finish_reason(self) -> FinishReason:
        """Return why the reply ended. Without a known reason, only calls with complete arguments count.

        Some servers send no reason, or invent one. A call that was cut after its name would run without arguments.
        """
        found = reply_ending(self._finish)
        if found == "failed":
            raise self._failures.from_stream_error({"message": "the model failed"})
        if found == "broken_off":
            raise self._failures.bad_stream(f"broken off, {self._finish[:100]}")
        if self._refused:
            return "refusal"
        if found != "unknown":
            return found
        if self._assembly.full or all(call.is_whole() for call in self._assembly.calls):
            return "stop"
        if not self._finish:
            raise self._failures.bad_stream("cut off within a call")
        return "length"

    def _cost(self, usage: Usage) -> float | None:
        written = _first_count(self._usage, _CACHE_WRITES)
        return reply_cost_usd(
            self._provider, self._request.model, usage, billed=self._usage.get("cost"), cache_write_tokens=written
        )

    def _read_choice(self, choice: dict[str, Any]) -> None:
        if choice.get("error"):
            raise self._failures.from_stream_error(choice)
        streamed = as_object(choice.get("delta"))
        delta = streamed or as_object(choice.get("message"))
        self._finish = as_text(choice.get("finish_reason")) or self._finish
        if refusal := as_text(delta.get("refusal")):
            self._refused = True
            self._assembly.add_text(refusal)
        self._keep_fields(further_message_fields(delta))
        files = (file for file in file_annotations(delta) if file not in self._files)
        self._files += islice(files, MAX_REQUEST_ITEMS - len(self._files))
        self._assembly.show_thinking(_thinking_piece(delta), "")
        self._assembly.add_text(_content(delta.get("content")))
        for image in (*as_objects(delta.get("images")), *as_objects(delta.get("content"))):
            if url := as_text(as_object(image.get("image_url")).get("url")):
                self._assembly.add_image(url)
        for call in as_objects(delta.get("tool_calls")):
            if self._assembly.full:
                break
            opened = add_call_delta(self._assembly, call, is_streamed=bool(streamed))
            if opened is not None:
                opened.fields.add(further_call_fields(call))

    def _keep_fields(self, fields: dict[str, Any]) -> None:
        if fields and self._fields is None:
            kept = self._fields = StreamedFields(may_repeat=True)
            self._assembly.add_blocks(lambda: message_parts(kept.value(), has_calls=bool(self._assembly.calls)))
        if fields and self._fields is not None:
            self._fields.add(fields)


def _thinking_piece(delta: dict[str, Any]) -> str:
    """Return the thinking of a delta. OpenRouter has it in `reasoning`, its details or both, and Mistral in chunks."""
    named = next(filter(None, (as_text(delta.get(name)) for name in _SHOWN_THINKING)), "")
    chunks = thinking_chunks(delta.get("content"))
    inner = (piece for chunk in chunks for piece in as_objects(chunk.get("thinking")))
    pieces = (*as_objects(delta.get("reasoning_details")), *inner, *chunks) if not named else ()
    return named or "".join(as_text(piece.get(key)) for piece in pieces for key in ("text", "summary", "thinking"))


def _content(content: object) -> str:
    """Return visible text: a string, or the text parts of a list."""
    visible = (part for part in as_objects(content) if part.get("type") not in ("thinking", "reasoning"))
    return as_text(content) or "".join(as_text(part.get("text")) for part in visible)


_CACHE_READS = ("cached_tokens", "prompt_cache_hit_tokens", "cache_read_input_tokens")
"""Names of the counts of tokens that came from a cache: OpenAI and Moonshot, DeepSeek, LiteLLM and Bedrock."""

_CACHE_WRITES = (
    "cache_write_tokens",
    "cache_creation_input_tokens",
    "cache_creation_tokens",
    "cache_write_input_tokens",
)
"""Names of the counts of tokens that were written to a cache: OpenRouter, LiteLLM and DashScope, LiteLLM, Bedrock."""


def _first_count(usage: dict[str, Any], names: tuple[str, ...], details: str = "prompt_tokens_details") -> int:
    """Return the first of these counts that is not 0, among the details or next to them."""
    places = (as_object(usage.get(details)), usage)
    return next((count for place in places for name in names if (count := as_count(place.get(name)))), 0)


def _chat_usage(counts: dict[str, Any]) -> Usage:
    """Return the counts. Gemini and xAI leave thinking out of `completion_tokens`, and count it only in the total."""
    sent = as_count(counts.get("prompt_tokens"))
    answer = as_count(counts.get("completion_tokens"))
    written = max(answer, as_count(counts.get("total_tokens")) - sent) if sent else answer
    thought = _first_count(counts, ("reasoning_tokens",), "completion_tokens_details")
    cached = _first_count(counts, _CACHE_READS)
    return frugal_usage(sent, written, cached, max(thought, written - answer))
