"""Requests of the Chat Completions protocol, for OpenAI, OpenRouter, Ollama and all compatible servers."""

import re
from collections.abc import Iterable, Sequence, Set
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from pydantic_core import to_json

from orga.activities.adapters.models.dialect import Dialect
from orga.activities.adapters.models.http import merged_fields
from orga.activities.adapters.models.kept_fields import further_call_fields, message_fields, parts_with_fields
from orga.activities.adapters.models.media import data_url, file_name, media_apart
from orga.activities.adapters.models.openai.chat_reply import ChatReader
from orga.activities.adapters.models.schema_shape import is_strict
from orga.activities.adapters.models.thinking import CHAT_THINKING, ThinkingWire
from orga.activities.adapters.models.wire import (
    OMITTED_BEGINNING,
    Wire,
    cache_control,
    system_texts,
    wire_id,
    wire_name,
    with_results_first,
)
from orga.activities.ports import LoadedMedia, ModelRequest
from orga.workflows.types.json_text import FINAL_ANSWER
from orga.workflows.types.messages import Message, ToolCall
from orga.workflows.types.parts import BETWEEN_TEXTS, TextPart
from orga.workflows.types.tool_calls.tools import ToolSpec

_TOOL_CHOICE = {"any": "required", "none": "none"}
_ACKNOWLEDGEMENT = "[Noted.]"
"""Text of the assistant, if its turn has to come between results and guidance."""


def chat_body(
    request: ModelRequest, dialect: Dialect, *, openrouter: bool, thinking: ThinkingWire = CHAT_THINKING
) -> dict[str, Any]:
    """Return the body of a streamed chat completion."""
    body: dict[str, Any] = {
        "model": request.model,
        "messages": _messages(request, dialect, openrouter=openrouter),
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
        body |= thinking.fields(sent)
    if request.output_schema is not None:
        body["response_format"] = _response_format(request.output_schema)
    if request.tools:
        body["tools"] = [_tool_entry(spec, dialect) for spec in request.tools]
        body |= tool_choice_fields(request, dialect)
    return body


def tool_choice_fields(request: ModelRequest, dialect: Dialect) -> dict[str, Any]:
    """Return the fields about calls for both protocols of OpenAI. A free choice is the default, and some refuse it."""
    choice, parallel = dialect.tool_choice(request), dialect.settings(request).parallel_tool_calls
    fields: dict[str, Any] = {} if choice == "auto" else {"tool_choice": _TOOL_CHOICE[choice]}
    return fields if parallel is None else fields | {"parallel_tool_calls": parallel}


def _response_format(schema: dict[str, Any]) -> dict[str, Any]:
    return {
        "type": "json_schema",
        "json_schema": {"name": FINAL_ANSWER, "schema": schema, "strict": is_strict(schema)},
    }


def system_text(request: ModelRequest) -> str:
    """Return all instructions as one text, because many chat templates refuse a second system message."""
    return BETWEEN_TEXTS.join(system_texts(request))


def _messages(request: ModelRequest, dialect: Dialect, *, openrouter: bool) -> list[dict[str, Any]]:
    text = system_text(request)
    system: list[dict[str, Any]] = [{"role": "system", "content": text}] if text else []
    spoken = (message for message in request.messages if message.role != "system")
    rest = [wire for message in with_results_first(media_apart(spoken)) for wire in _message(message, dialect)]
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
    found: list[dict[str, Any]] = []
    for role, side in groupby(messages, key=lambda message: message["role"]):
        turns = list(side)
        if not found and role == "assistant":
            found.append({"role": "user", "content": OMITTED_BEGINNING})
        if found and found[-1]["role"] == "tool" and role == "user":
            found.append({"role": "assistant", "content": _ACKNOWLEDGEMENT})
        found += _merged_turns(turns) if role != "tool" else turns
    return found


def _merged_turns(turns: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return consecutive messages of one role as one."""
    joined = {key: value for turn in turns for key, value in turn.items()}
    joined["content"] = _merged_content([turn["content"] for turn in turns if turn["content"]])
    calls = [call for turn in turns for call in turn.get("tool_calls", ())]
    return [joined | {"tool_calls": calls} if calls else joined]


def _merged_content(contents: Sequence[str | list[dict[str, Any]]]) -> str | list[dict[str, Any]] | None:
    texts = [content for content in contents if isinstance(content, str)]
    if len(texts) == len(contents):
        return BETWEEN_TEXTS.join(texts) or None
    return [part for content in contents for part in ([_text(content)] if isinstance(content, str) else content)]


def _text(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


def _content(message: Message) -> str | list[dict[str, Any]]:
    """Return the text, or the parts if there are pictures or documents."""
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
    """Return the message with all fields that came with it."""
    parts = parts_with_fields(message.parts, "chat")
    calls = [
        merged_fields(further_call_fields(fields), _call_entry(part))
        for part, fields in parts
        if isinstance(part, ToolCall)
    ]
    kept = message_fields(message)
    chunks = [*kept["content"], *([_text(message.text)] if message.text else [])] if kept.get("content") else None
    own: dict[str, Any] = {"role": "assistant", "content": chunks or message.text or None}
    return kept | own | ({"tool_calls": calls} if calls else {})


def _call_entry(call: ToolCall) -> dict[str, Any]:
    """Return the call. Malformed arguments become `{}`, because some servers parse them and refuse the request."""
    function_definition = {"name": wire_name(call.name), "arguments": to_json(call.arguments).decode()}
    return {"id": wire_id(call.call_id), "type": "function", "function": function_definition}


def _tool_entry(spec: ToolSpec, dialect: Dialect) -> dict[str, Any]:
    """Return the entry of a tool. `strict` is left out if it is false, because some servers do not know it."""
    strict = {"strict": True} if dialect.strict_tools and is_strict(spec.parameters) else {}
    return {"type": "function", "function": function_definition(spec) | strict}


def function_definition(spec: ToolSpec) -> dict[str, Any]:
    """Return the definition of a tool for both protocols of OpenAI."""
    made: dict[str, Any] = {"name": spec.name, "parameters": {"type": "object", "properties": {}} | spec.parameters}
    return made | {"description": spec.description} if spec.description else made


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
    reader = ChatReader

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
        return chat_body(request, dialect, openrouter=self.provider == "openrouter", thinking=self.thinking)
