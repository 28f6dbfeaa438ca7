"""The Chat Completions protocol, for OpenAI, OpenRouter, Ollama and all compatible servers: replies and requests."""

import re
from collections.abc import Iterable, Sequence, Set
from dataclasses import dataclass, field
from itertools import groupby, islice
from typing import Any, Literal

from pydantic_core import to_json

from orga.activities.adapters.models.dialect import Dialect
from orga.activities.adapters.models.http import END_FRAME, merged_fields
from orga.activities.adapters.models.kept_fields import (
    StreamedFields,
    file_annotations,
    file_parts,
    further_call_fields,
    further_message_fields,
    message_fields,
    message_parts,
    parts_with_fields,
    thinking_chunks,
)
from orga.activities.adapters.models.media import MAX_REQUEST_ITEMS, data_url, file_name, with_media_after_results
from orga.activities.adapters.models.reply import OpenCall, ReplyAssembly, frugal_usage
from orga.activities.adapters.models.schema_shape import is_strict
from orga.activities.adapters.models.thinking import CHAT_THINKING, ThinkingWire
from orga.activities.adapters.models.wire import (
    OMITTED_BEGINNING,
    StreamReader,
    Wire,
    cache_control,
    system_texts,
    wire_id,
    wire_name,
    with_results_first,
)
from orga.activities.ports import LoadedMedia, ModelRequest
from orga.workflows.types.json_text import FINAL_ANSWER, as_count, as_object, as_objects, as_text
from orga.workflows.types.messages import FinishReason, Message, Reply, ToolCall
from orga.workflows.types.models.usage import Usage
from orga.workflows.types.parts import BETWEEN_TEXTS, TextPart
from orga.workflows.types.tool_calls.tools import ToolSpec

_SHOWN_THINKING = ("reasoning_content", "reasoning", "thinking")
"""Fields with a piece of thinking. Servers that know two of them write the same text in both."""

_ReplyEnding = FinishReason | Literal["failed", "broken_off"]

_REASONS: dict[_ReplyEnding, str] = {
    "stop": "stop end end_turn eos eos_token stop_sequence complete completed "
    "tool_call tool_calls tool_use function_call",
    "length": "length max_length max_tokens model_length model_context_window_exceeded repetition",
    "content_filter": "content_filter function_call_filter prohibited_content "
    "blocklist recitation safety sensitive spii",
    "refusal": "refusal",
    "failed": "error",
    "broken_off": "abort aborted canceled cancelled insufficient_system_resource network_error",
}
"""The finish reasons of servers, by their meaning."""


@dataclass(frozen=True)
class _CallDelta:
    index: int | None
    call_id: str
    name: str
    arguments: str
    has_arguments: bool


def _add_call_delta(assembly: ReplyAssembly, entry: dict[str, Any], *, is_streamed: bool = True) -> OpenCall | None:
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
    call.call_id = call.call_id or assembly.take_within_room(delta.call_id)
    if delta.name != call.name:  # some servers repeat the whole name
        call.name += assembly.take_within_room(delta.name)
    assembly.add_arguments(call, delta.arguments)
    return call


def _call_delta(entry: dict[str, Any]) -> _CallDelta:
    function, index = as_object(entry.get("function")), entry.get("index")
    arguments = function.get("arguments")
    text = as_text(arguments)
    if arguments and not isinstance(arguments, str):
        text = to_json(arguments).decode()
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
        matching = [] if delta.name else calls  # only a name begins a call
    same_id = [call for call in matching if delta.call_id and call.call_id == delta.call_id]
    latest = (same_id or matching)[-1:]
    return next((call for call in latest if not _begins_new_call(call, delta)), None)


def _begins_new_call(call: OpenCall, delta: _CallDelta) -> bool:
    """Return whether a delta that matches `call` begins another call, because some servers number every call 0.

    Names may come in pieces, or again with every piece of the arguments. Arguments may begin with the placeholder `{}`.
    """
    if not delta.name or not call.name:
        return False
    if call.call_id and delta.call_id and call.call_id != delta.call_id:
        return True
    if delta.name != call.name:  # the delta has a further piece of the name, or another name
        return any(call.arguments) or (delta.has_arguments and not call.call_id)
    # the same name again: equal ids mean the same call; without them, another call begins only after a complete one
    has_equal_ids = bool(call.call_id and delta.call_id)
    is_complete = "".join(call.arguments).strip() != "{}" and call.is_whole()
    return delta.has_arguments and is_complete and not has_equal_ids


@dataclass
class _ChatReader(StreamReader):
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
            return False  # the frames end by themselves after this one
        if frame.get("error"):
            raise self._failures.from_stream_error(frame)
        self._model = as_text(frame.get("model")) or self._model
        choices = as_objects(frame.get("choices"))
        for holder in (*choices[:1], as_object(frame.get("x_groq")), frame):  # places of the usage
            self._usage = as_object(holder.get("usage")) or self._usage
        for choice in choices:
            self._answered = True
            if not choice.get("index"):  # only the first choice is read
                self._read_choice(choice)
        return self._assembly.full

    def reply(self) -> Reply:
        if not (self._finish or (self._ended and self._answered) or self._assembly.full):
            raise self._failures.bad_stream("cut off before its end")
        finish = self._finish_reason()
        if self._files:
            self._assembly.add_blocks(lambda: file_parts(self._files, self._request.messages))
        written = _first_count(self._usage, _CACHE_WRITES)
        counted = _chat_usage(self._usage)
        return self._priced_reply(finish, counted, billed=self._usage.get("cost"), cache_write_tokens=written)

    def _finish_reason(self) -> FinishReason:
        """Return why the reply ended. Without a known reason, a reply with an incomplete call was cut.

        Some servers send no reason, or invent one. A call that was cut after its name would run without arguments.
        """
        name = self._finish.partition(":")[0].strip().lower()  # Gemini has `function_call_filter: DETAIL`
        meanings: list[_ReplyEnding] = [ending for ending, reasons in _REASONS.items() if name in reasons.split()]
        meaning = next(iter(meanings), None)
        if meaning == "failed":
            raise self._failures.from_stream_error({"message": "the model failed"})
        if meaning == "broken_off":
            raise self._failures.bad_stream(f"broken off, {self._finish[:100]}")
        if self._refused:
            return "refusal"
        if meaning is not None:
            return meaning
        if self._assembly.full or all(call.is_whole() for call in self._assembly.calls):
            return "stop"
        if not self._finish:
            raise self._failures.bad_stream("cut off within a call")
        return "length"

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
        self._assembly.add_text(_visible_text(delta.get("content")))
        for image in (*as_objects(delta.get("images")), *as_objects(delta.get("content"))):
            if url := as_text(as_object(image.get("image_url")).get("url")):
                self._assembly.add_image(url)
        for call in as_objects(delta.get("tool_calls")):
            if self._assembly.full:
                break
            opened = _add_call_delta(self._assembly, call, is_streamed=bool(streamed))
            if opened is not None:
                opened.fields.add(further_call_fields(call))

    def _keep_fields(self, fields: dict[str, Any]) -> None:
        if not fields:
            return
        if self._fields is None:
            kept = self._fields = StreamedFields(may_repeat=True)
            self._assembly.add_blocks(lambda: message_parts(kept.value(), has_calls=bool(self._assembly.calls)))
        self._fields.add(fields)


def _thinking_piece(delta: dict[str, Any]) -> str:
    """Return the thinking of a delta. OpenRouter has it in `reasoning`, its details or both, Mistral in chunks."""
    if named := next(filter(None, (as_text(delta.get(name)) for name in _SHOWN_THINKING)), ""):
        return named
    chunks = thinking_chunks(delta.get("content"))  # `thinking` of a chunk is a text or a list
    inner = (piece for chunk in chunks for piece in as_objects(chunk.get("thinking")))
    pieces = (*as_objects(delta.get("reasoning_details")), *inner, *chunks)
    return "".join(as_text(piece.get(key)) for piece in pieces for key in ("text", "summary", "thinking"))


def _visible_text(content: object) -> str:
    visible = (part for part in as_objects(content) if part.get("type") not in ("thinking", "reasoning"))
    return as_text(content) or "".join(as_text(part.get("text")) for part in visible)


_CACHE_READS = (
    "cached_tokens",  # OpenAI, Moonshot
    "prompt_cache_hit_tokens",  # DeepSeek
    "cache_read_input_tokens",  # LiteLLM, Bedrock
)
"""Names of the counts of tokens that came from a cache."""

_CACHE_WRITES = (
    "cache_write_tokens",  # OpenRouter
    "cache_creation_input_tokens",  # LiteLLM, DashScope
    "cache_creation_tokens",  # LiteLLM
    "cache_write_input_tokens",  # Bedrock
)
"""Names of the counts of tokens that were written to a cache."""


def _first_count(usage: dict[str, Any], names: tuple[str, ...], details: str = "prompt_tokens_details") -> int:
    """Return the first of these counts that is not 0, among the details or next to them."""
    holders = (as_object(usage.get(details)), usage)
    return next((count for holder in holders for name in names if (count := as_count(holder.get(name)))), 0)


def _chat_usage(counts: dict[str, Any]) -> Usage:
    """Return the counts. Gemini and xAI leave thinking out of `completion_tokens`, and count it only in the total."""
    sent = as_count(counts.get("prompt_tokens"))
    answer = as_count(counts.get("completion_tokens"))
    written = max(answer, as_count(counts.get("total_tokens")) - sent) if sent else answer
    thought = _first_count(counts, ("reasoning_tokens",), "completion_tokens_details")
    cached = _first_count(counts, _CACHE_READS)
    return frugal_usage(sent, written, cached, max(thought, written - answer))


_TOOL_CHOICE = {"any": "required", "none": "none"}
_ACKNOWLEDGEMENT = "[Noted.]"
"""The assistant's text if a turn of the assistant has to separate results from the user's next message."""


def tool_choice_fields(request: ModelRequest, dialect: Dialect) -> dict[str, Any]:
    """Return the fields about calls for both protocols of OpenAI. `auto` is the default, and some servers refuse it."""
    choice, parallel = dialect.tool_choice(request), dialect.settings(request).parallel_tool_calls
    fields: dict[str, Any] = {} if choice == "auto" else {"tool_choice": _TOOL_CHOICE[choice]}
    return fields if parallel is None else fields | {"parallel_tool_calls": parallel}


def system_text(request: ModelRequest) -> str:
    """Return all instructions as one text, because many chat templates refuse a second system message."""
    return BETWEEN_TEXTS.join(system_texts(request))


def _messages(request: ModelRequest, dialect: Dialect, *, openrouter: bool) -> list[dict[str, Any]]:
    text = system_text(request)
    system: list[dict[str, Any]] = [{"role": "system", "content": text}] if text else []
    others = (message for message in request.messages if message.role != "system")
    ordered = with_results_first(with_media_after_results(others))
    rest = [wire for message in ordered for wire in _message(message, dialect)]
    if system and not dialect.system_role:
        rest, system = [{"role": "user", "content": text}, *rest], []
    if dialect.alternating or not dialect.system_role:
        rest = _alternating_messages(rest)
    if openrouter and request.model.startswith("anthropic/"):
        for marked in (system[-1:], rest[-1:]):
            _mark_cache(marked, dialect.settings(request).cache_ttl)
    return system + rest


def _alternating_messages(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return messages in which user and assistant alternate. The user begins, and results follow their calls.

    Consecutive texts of one role are joined. A short assistant message separates results from the next user message.
    """
    alternating: list[dict[str, Any]] = []
    for role, side in groupby(messages, key=lambda message: message["role"]):
        turns = list(side)
        if not alternating and role == "assistant":
            alternating.append({"role": "user", "content": OMITTED_BEGINNING})
        if alternating and alternating[-1]["role"] == "tool" and role == "user":
            alternating.append({"role": "assistant", "content": _ACKNOWLEDGEMENT})
        if role != "tool":
            joined = {key: value for turn in turns for key, value in turn.items()}
            joined["content"] = _merged_content([turn["content"] for turn in turns if turn["content"]])
            calls = [call for turn in turns for call in turn.get("tool_calls", ())]
            turns = [joined | {"tool_calls": calls} if calls else joined]
        alternating += turns
    return alternating


def _merged_content(contents: Sequence[str | list[dict[str, Any]]]) -> str | list[dict[str, Any]] | None:
    texts = [content for content in contents if isinstance(content, str)]
    if len(texts) == len(contents):
        return BETWEEN_TEXTS.join(texts) or None
    merged: list[dict[str, Any]] = []
    for content in contents:
        merged += [_text(content)] if isinstance(content, str) else content
    return merged


def _text(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


def _content(message: Message) -> str | list[dict[str, Any]]:
    if not message.media:
        return message.text
    content: list[dict[str, Any]] = []
    for part in message.parts:
        if isinstance(part, TextPart) and part.text:
            content.append(_text(part.text))
        elif isinstance(part, LoadedMedia) and part.kind == "image":
            content.append({"type": "image_url", "image_url": {"url": data_url(part)}})
        elif isinstance(part, LoadedMedia):
            content.append({"type": "file", "file": {"filename": file_name(part), "file_data": data_url(part)}})
    return content


def _message(message: Message, dialect: Dialect) -> Iterable[dict[str, Any]]:
    """Yield the message, or nothing for an assistant turn without text and calls."""
    if message.role == "tool":
        yield {"role": "tool", "tool_call_id": wire_id(message.call_id), "content": message.text}
    elif message.role != "assistant":
        yield {"role": message.role, "content": _content(message)}
    elif message.text or message.calls:
        is_whole = dialect.thinking and dialect.kept_fields
        yield _assistant_message(message if is_whole else message.without_blocks())


def _assistant_message(message: Message) -> dict[str, Any]:
    parts = parts_with_fields(message.parts, "chat")
    calls = [
        merged_fields(further_call_fields(fields), _call_entry(part))
        for part, fields in parts
        if isinstance(part, ToolCall)
    ]
    kept = message_fields(message)
    chunks = kept.get("content")  # Mistral's thinking, which the text follows
    if chunks and message.text:
        chunks = [*chunks, _text(message.text)]
    own: dict[str, Any] = {"role": "assistant", "content": chunks or message.text or None}
    return kept | own | ({"tool_calls": calls} if calls else {})


def _call_entry(call: ToolCall) -> dict[str, Any]:
    """Return the entry of a call. Malformed arguments, which some servers refuse, are replaced by `{}`."""
    function = {"name": wire_name(call.name), "arguments": to_json(call.arguments).decode()}
    return {"id": wire_id(call.call_id), "type": "function", "function": function}


def _tool_entry(spec: ToolSpec, dialect: Dialect) -> dict[str, Any]:
    """Return the entry of a tool. `strict` is left out if it is false, because some servers do not know it."""
    strict = {"strict": True} if dialect.strict_tools and is_strict(spec.parameters) else {}
    return {"type": "function", "function": function_definition(spec) | strict}


def function_definition(spec: ToolSpec) -> dict[str, Any]:
    """Return the definition of a tool for both protocols of OpenAI."""
    empty: dict[str, Any] = {"type": "object", "properties": {}}
    definition: dict[str, Any] = {"name": spec.name, "parameters": empty | spec.parameters}
    return definition | {"description": spec.description} if spec.description else definition


def _mark_cache(last: list[dict[str, Any]], ttl: str | None) -> None:
    """Set a prompt-cache breakpoint on the text of the last message, if it has any."""
    for wire in last:
        if content := wire["content"]:
            parts = [_text(content)] if isinstance(content, str) else content
            marked = next((part for part in reversed(parts) if part["type"] == "text"), parts[-1])
            marked["cache_control"] = cache_control(ttl)
            wire["content"] = parts


_REASONING_MODELS = re.compile(r"o\d|gpt-[5-9]")
"""OpenAI's own names of models that refuse `max_tokens`. Routers translate the field themselves."""


@dataclass(frozen=True)
class OpenAIChat(Wire):
    thinking: ThinkingWire = CHAT_THINKING
    path = "/chat/completions"
    name_pattern = r"chat[ /_-]?completions?"
    reader = _ChatReader

    @property
    def may_be_missing(self) -> bool:
        return self.provider not in {"openrouter", "ollama"}

    @property
    def has_raw_text(self) -> bool:
        return self.provider != "openai"

    def absent_settings(self, model: str) -> Set[str]:
        has_cache = self.provider == "openrouter" and model.startswith("anthropic/")
        return frozenset() if has_cache else {"cache_ttl"}

    def dialect(self, model: str) -> Dialect:
        """Return a dialect with OpenAI's newer name of the output limit for models that accept no other."""
        is_openai = self.provider == "openai" or (self.provider == "openrouter" and model.startswith("openai/"))
        return Dialect(
            tokens_field="max_completion_tokens" if _REASONING_MODELS.match(model) else "max_tokens",
            thinking_forms=self.thinking.forms,
            thinking_levels=self.thinking.levels,
            sure_schema=is_openai,
            strict_tools=is_openai,
        )

    def body(self, request: ModelRequest, dialect: Dialect) -> dict[str, Any]:
        body: dict[str, Any] = {
            "model": request.model,
            "messages": _messages(request, dialect, openrouter=self.provider == "openrouter"),
            "stream": True,
            dialect.tokens_field: dialect.output_tokens(request),
        }
        if dialect.stream_options:
            body["stream_options"] = {"include_usage": True}
        settings = dialect.settings(request)
        body |= settings.given("temperature", "top_p", "seed", "service_tier")
        if settings.stop:
            body["stop"] = list(settings.stop)
        if (sent := dialect.sent_thinking(request)).form is not None:
            body |= self.thinking.fields(sent)
        if (schema := request.output_schema) is not None:
            form = {"name": FINAL_ANSWER, "schema": schema, "strict": is_strict(schema)}
            body["response_format"] = {"type": "json_schema", "json_schema": form}
        if request.tools:
            body["tools"] = [_tool_entry(spec, dialect) for spec in request.tools]
            body |= tool_choice_fields(request, dialect)
        return body
