"""A model provider over HTTP: one streamed request per call. A refused request may be sent again in another form."""

import asyncio
import logging
import re
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable
from contextlib import aclosing
from dataclasses import replace
from hashlib import sha256
from typing import Any, Generic, TypeVar

from pydantic_core import to_json

from orga.activities.adapters import http
from orga.activities.adapters.models.dialect import (
    LESSON_S,
    MAX_LESSONS,
    Dialect,
    LessonFile,
    dialect_at,
    learned_dialect,
    lesson_key,
    temporary_changes,
)
from orga.activities.adapters.models.errors import Refusal
from orga.activities.adapters.models.http import ProviderEndpoint, ProviderHttp
from orga.activities.adapters.models.kept_fields import is_thinking
from orga.activities.adapters.models.media import in_words, with_loaded_media, with_stored_media
from orga.activities.adapters.models.schema_shape import as_wrapped_root, fits_as_root, is_strict
from orga.activities.adapters.models.text_calls import (
    request_in_text,
    with_calls_of_text,
    with_tagged_calls,
    without_tagged_thinking,
)
from orga.activities.adapters.models.thinking import replaced_setting_text
from orga.activities.adapters.models.wire import Wire
from orga.activities.adapters.models.wire_tools import WireTools
from orga.activities.ports import BlobStore, ModelError, ModelRequest
from orga.workflows.types.json_text import FINAL_ANSWER, as_count, as_object, as_objects
from orga.workflows.types.messages import Message, Reply
from orga.workflows.types.parts import ToolCall, with_text, without_calls
from orga.workflows.types.tool_calls.tools import ToolSpec

_WRAPPER_KEY = "value"
"""The property that holds an answer whose schema is not an object at its top."""


def shaped_request(request: ModelRequest, dialect: Dialect) -> ModelRequest:
    """Return the request to send. It keeps its `output_schema` only if the protocol's field for it can be used.

    With tools, that field is used only if the server is known to allow calls next to it. Ollama and similar servers
    force everything that the model writes into the schema, so the model could never call a tool.
    """
    schema = request.output_schema
    if schema is None:
        is_enforced = dialect.sure_schema and _is_schema_supported(request.reply_schema, dialect)
        return replace(request, output_schema=request.reply_schema) if is_enforced else request
    if _is_schema_supported(schema, dialect) and (dialect.sure_schema or not request.tools):
        return request if dialect.sure_schema else _with_schema_instructions(request, schema)
    if dialect.answer_tool:
        return replace(request, tools=(*request.tools, _answer_tool(schema)), tool_choice="any", output_schema=None)
    return replace(_with_schema_instructions(request, schema), output_schema=None)


def with_answer_text(reply: Reply, schema: dict[str, Any]) -> Reply:
    """Return the reply with the answer tool's arguments as its text. If there are other calls, that call is dropped."""
    answers = [call for call in reply.calls if call.name == FINAL_ANSWER]
    if not answers:
        return reply
    parts = without_calls(reply.parts, {FINAL_ANSWER})
    if len(answers) < len(reply.calls):
        return reply.with_differences(parts=parts)
    stale = {"parts", "finish"} if reply.finish == "tool_calls" else {"parts"}
    fields: dict[str, Any] = {name: getattr(reply, name) for name in reply.model_fields_set - stale}
    return Reply(parts=with_text(parts, _answer_json(answers[0], schema)), **fields)


def _is_schema_supported(schema: dict[str, Any] | None, dialect: Dialect) -> bool:
    """Return whether the protocol's own field for a schema accepts this one."""
    if schema is None or not dialect.response_format:
        return False
    return fits_as_root(schema) and (is_strict(schema) or not dialect.strict_schema)


def _answer_json(call: ToolCall, schema: dict[str, Any]) -> str:
    if call.malformed is not None:
        return call.malformed
    is_wrapped = not fits_as_root(schema) and call.arguments.keys() == {_WRAPPER_KEY}
    return to_json(call.arguments[_WRAPPER_KEY] if is_wrapped else call.arguments).decode()


def _answer_tool(schema: dict[str, Any]) -> ToolSpec:
    return ToolSpec(
        name=FINAL_ANSWER,
        description=(
            "Give the final answer to the task. Call it once, alone, when nothing is left to find out; "
            "its arguments are the answer, and plain text is not."
        ),
        parameters=as_wrapped_root(schema, _WRAPPER_KEY),
    )


def _with_schema_instructions(request: ModelRequest, schema: dict[str, Any]) -> ModelRequest:
    text = "Your final answer is one JSON value that fits this JSON Schema, with nothing before or after it:\n"
    return replace(request, system=(*request.system, text + to_json(schema).decode()))


MAX_REMEMBERED = 20_000
"""Digests of blocks of thinking. The oldest are forgotten."""


class ThinkingMemory:
    """Remembers which thinking an endpoint has accepted or refused."""

    def __init__(self) -> None:
        self._refused: OrderedDict[str, None] = OrderedDict()
        self._accepted: OrderedDict[str, None] = OrderedDict()

    def without_refused(self, request: ModelRequest) -> ModelRequest:
        """Return the request without the thinking that was refused before, because it would be refused again."""
        if not self._refused:
            return request
        return replace(request, messages=tuple(self._without_refused(message) for message in request.messages))

    def note_accepted(self, request: ModelRequest) -> None:
        _remember_digests(self._accepted, _thinking_digests(request.messages))

    def note_refused(self, request: ModelRequest) -> None:
        """Record that some thinking of the request was refused. The block is unknown, so all of them are left out."""
        _remember_digests(self._refused, _thinking_digests(request.messages))

    def is_hopeless(self, whole: ModelRequest, sent: ModelRequest) -> bool:
        """Return whether the endpoint accepts no thinking at all.

        That is so if the endpoint refused some thinking of `whole` earlier, refuses the rest in `sent` now, and has
        accepted none of this rest. If it has accepted some, the reason for the refusal is a change in the conversation.
        """
        before = len(list(_thinking_digests(whole.messages)))
        now = list(_thinking_digests(sent.messages))
        return len(now) < before and not any(digest in self._accepted for digest in now)

    def _without_refused(self, message: Message) -> Message:
        if not any(digest in self._refused for digest in _thinking_digests((message,))):
            return message
        return message.with_parts(tuple(part for part in message.parts if not is_thinking(part)))


def _thinking_digests(messages: Iterable[Message]) -> Iterable[str]:
    blocks = (block for message in messages for block in message.blocks if is_thinking(block))
    return (sha256(to_json(block)).hexdigest() for block in blocks)


def _remember_digests(remembered: OrderedDict[str, None], digests: Iterable[str]) -> None:
    for digest in digests:
        remembered[digest] = None
        remembered.move_to_end(digest)
    while len(remembered) > MAX_REMEMBERED:
        remembered.popitem(last=False)


_MAX_MODELS = 256
"""Models, or texts about them, that a provider remembers. The names come from outside, so they need a limit."""

K = TypeVar("K")
V = TypeVar("V")


class LastingValues(Generic[K, V]):
    """Values that count for some seconds. If there are too many, all are forgotten."""

    def __init__(self) -> None:
        self._values: dict[K, tuple[V, float]] = {}
        """Each value with the time until which it counts, by `time.monotonic()`."""

    def get(self, key: K) -> V | None:
        value, until = self._values.get(key, (None, 0.0))
        return value if time.monotonic() < until else None

    def keep(self, key: K, value: V, seconds: float) -> None:
        if len(self._values) >= _MAX_MODELS:
            self._values.clear()
        self._values[key] = value, time.monotonic() + seconds


WINDOW_S = 30.0
"""Seconds for which a stated context window counts. A server may load the model again with another window."""

WINDOW_TIMEOUT_S = 3.0
"""Seconds for a server to state a context window. A run's preparation waits for this, and its attempts have 10."""

_log = logging.getLogger(__name__)

_WINDOW_KEYS = ("max_model_len", "context_length", "context_window", "max_context_length")
"""Keys of a model's window in a server's list (vLLM, OpenRouter, Groq, Mistral). llama.cpp has it in `meta`."""

_NO_ROUTE = frozenset({404, 405, 501})
_DOCUMENTATION_LINK = re.compile(r"https?://(?!\S*/v\d)\S+")
"""Links in a refusal, except those that name an endpoint."""
_ADDRESS = re.compile(r"(?<!\S)\S*/\S*")
"""A path or link in a refusal. Some servers have `models` in all their paths."""


class StreamingProvider:
    """A `ModelProvider` for one endpoint with one or two protocols."""

    def __init__(
        self,
        endpoint: ProviderEndpoint,
        wire: Wire,
        transport: http.AsyncBaseTransport | None = None,
        *,
        other: Wire | None = None,
        lessons: LessonFile | None = None,
        blobs: BlobStore | None = None,
    ) -> None:
        """Keep the endpoint.

        Args:
            other: The protocol to change to if the endpoint points to it, or lacks the first one.
            lessons: The lessons of all workers of a state folder.
            blobs: The store of pictures and documents. Without it, the model gets words.
        """
        self._endpoint = endpoint
        self._lessons, self._blobs = lessons, blobs
        self._usual = wire
        self._others = {} if other is None else {wire.path: other, other.path: wire}
        """The protocol to change to, by the path of the current one."""
        self._http = ProviderHttp(endpoint, transport)
        self._wires: dict[str, Wire] = {}
        self._used: set[str] = set()
        """Paths of the protocols that have begun a reply."""
        self._dialects = LastingValues[tuple[str, str], Dialect]()
        """The learned dialects, by protocol and model."""
        self._windows = LastingValues[str, int]()
        """The context windows by model. 0: the server does not state it."""
        self._thinking = ThinkingMemory()
        self._reported: set[str] = set()
        """Texts that were logged already."""

    async def complete(self, request: ModelRequest, on_text: Callable[[str], None]) -> Reply:
        """Return the reply. Pass each piece of its text to `on_text` as it streams in.

        If a refusal points to the endpoint's other protocol, that protocol is tried. It is remembered for this model
        if it exists, and also for models that were not asked before if it replies.
        """
        wire = self._wires.get(request.model) or self._first_wire(request.model)
        request = await with_loaded_media(request, self._blobs)
        try:
            reply = await self._complete(wire, request, on_text)
        except Refusal as error:
            other = self._other_wire(wire, error)
            if other is None:
                raise
            try:
                reply = await self._complete(other, request, on_text)
            except Refusal as second:
                if second.status in _NO_ROUTE:  # neither protocol exists there, so the model or the address is wrong
                    raise error from None
                self._remember_wire(request.model, other, instead_of=wire)
                raise
            self._remember_wire(request.model, other, instead_of=wire)
            self._usual = wire = other
        self._remember_wire(request.model, wire)
        return await with_stored_media(reply, self._blobs, is_data=request.output_schema is not None)

    async def check_reachable(self) -> None:
        """Check that the provider answers and accepts the key, without generating anything. Raise ModelError if not."""
        await self._http.check_reachable("/models")

    async def context_window(self, model: str) -> int | None:
        """Return the tokens of a model's context, or None if the server does not list them in time."""
        window = self._windows.get(model)
        if window is None:
            try:
                async with asyncio.timeout(WINDOW_TIMEOUT_S):
                    answer = await self._http.read_object(self._endpoint.url("/models"))
                listed = (each for each in as_objects(answer.get("data")) if each.get("id") == model)
                entry = as_object(next(listed, None))
                stated = [entry.get(key) for key in _WINDOW_KEYS] + [as_object(entry.get("meta")).get("n_ctx")]
                window = next((tokens for tokens in map(as_count, stated) if tokens), 0)
            except (ModelError, TimeoutError):
                window = 0
            self._windows.keep(model, window, WINDOW_S)
        return window or None

    async def close(self) -> None:
        await self._http.close()

    async def _complete(self, wire: Wire, request: ModelRequest, on_text: Callable[[str], None]) -> Reply:
        """Return the reply over one protocol.

        If a refusal names something that the model does not accept (temperature, the name of the output limit, a tool),
        the request is repeated without it, and the lesson is remembered. A refusal generates nothing, so nothing is
        paid twice.
        """
        known = dialect = self._known_dialect(wire, request.model)
        fitting = self._thinking.without_refused(request)
        refusals, lessons, temporary = 0, 0, set[str]()
        while True:
            readable = in_words(fitting, images=not dialect.images, documents=not dialect.documents)
            asked = shaped_request(readable, dialect)
            tools = WireTools(asked.tools, dialect)
            sent = tools.to_wire(asked)
            self._report_settings(wire, sent, dialect)
            try:
                reply = tools.from_wire(await self._reply_with_calls(wire, sent, dialect, on_text))
            except Refusal as error:
                lesson = None
                if self._other_wire(wire, error, is_named=True) is None:
                    refusals += 1
                    lesson = learned_dialect(dialect, sent, error) if lessons < MAX_LESSONS else None
                    lessons += lesson is not None
                    lesson = lesson or tools.lesson(error)
                # a tool may cost two refusals: one of its own schema, and one of the plain schema
                if lesson is None or refusals > MAX_LESSONS + 2 * len(asked.tools):
                    if error.kind in {"InvalidRequest", "ContextOverflow"}:  # the lessons of this call have not helped
                        self._keep_dialect(wire, request.model, known)
                    raise
                temporary |= temporary_changes(lesson, dialect, error)
                lasting = replace(lesson, **{name: getattr(known, name) for name in temporary})
                if lacked := [n for n in ("images", "documents") if getattr(dialect, n) and not getattr(lasting, n)]:
                    self._report_once(request.model, f"it gets words instead of {lacked[0]}, because it refuses them")
                dialect = lesson
                if not lesson.thinking:
                    is_hopeless = self._thinking.is_hopeless(request, fitting)
                    self._thinking.note_refused(fitting)
                    if not is_hopeless:  # only this conversation has wrong thinking
                        lasting = replace(lasting, thinking=True)
                self._keep_dialect(wire, request.model, lasting)
            else:
                if dialect.thinking:
                    self._thinking.note_accepted(fitting)
                return reply if request.output_schema is None else with_answer_text(reply, request.output_schema)

    def _known_dialect(self, wire: Wire, model: str) -> Dialect:
        """Return what this process or its state folder has learned about the model, or else the usual dialect."""
        if (own := self._dialects.get((wire.path, model))) is not None:
            return own
        usual = dialect_at(wire.dialect(model), self._endpoint.settings)
        shared = None
        if self._lessons is not None:
            shared = self._lessons.get(lesson_key(self._endpoint.url(wire.path), model, usual))
        return usual if shared is None else shared

    def _keep_dialect(self, wire: Wire, model: str, dialect: Dialect) -> None:
        self._dialects.keep((wire.path, model), dialect, LESSON_S)
        if self._lessons is not None:
            usual = dialect_at(wire.dialect(model), self._endpoint.settings)
            self._lessons.keep(lesson_key(self._endpoint.url(wire.path), model, usual), dialect)

    async def _reply_with_calls(
        self, wire: Wire, request: ModelRequest, dialect: Dialect, on_text: Callable[[str], None]
    ) -> Reply:
        """Return the reply. Calls in its text become its calls. Thinking in its text is removed and counted."""
        if dialect.native_tools:
            reply = await self._attempt(wire, request, dialect, on_text)
            return with_tagged_calls(without_tagged_thinking(reply), request) if wire.has_raw_text else reply
        reply = await self._attempt(wire, request_in_text(request), dialect, on_text)
        return with_calls_of_text(without_tagged_thinking(reply), request)

    async def _attempt(
        self, wire: Wire, request: ModelRequest, dialect: Dialect, on_text: Callable[[str], None]
    ) -> Reply:
        reader = wire.reader(wire.provider, request, on_text, self._http.failures)
        answer = self._http.frames(wire.path, wire.body(request, dialect), request.settings.silence_s)
        async with aclosing(answer) as frames:
            async for frame in frames:
                is_whole = reader.feed(frame)
                self._used.add(wire.path)
                if is_whole:
                    break
        return reader.reply()

    def _other_wire(self, wire: Wire, error: Refusal, *, is_named: bool = False) -> Wire | None:
        """Return the other protocol if a refusal names it, or shows that the endpoint lacks this one.

        With `is_named`, only a refusal that names it counts, because the model may accept another form of the request.
        """
        other = self._others.get(wire.path)
        may_mean_protocol = error.kind in {"InvalidRequest", "ModelNotFound"} or error.status in _NO_ROUTE
        if other is None or not may_mean_protocol:
            return None
        text = _DOCUMENTATION_LINK.sub("", error.error.message)
        if re.search(other.name_pattern, text, re.IGNORECASE):
            return other
        if is_named or not wire.may_be_missing or wire.path in self._used:
            return None
        words = _ADDRESS.sub("", text)
        is_of_model = error.error.is_unknown_model or re.search(r"\b(?:model|deployment)", words, re.IGNORECASE)
        is_missing = error.status in _NO_ROUTE and not is_of_model
        return other if is_missing or re.search(wire.absence_pattern, text, re.IGNORECASE) else None

    def _report_settings(self, wire: Wire, request: ModelRequest, dialect: Dialect) -> None:
        """Log, once, each setting that this model gets in another form or does not get."""
        settings, absent = request.settings, wire.absent_settings(request.model)
        names = [name for name in sorted(absent | dialect.refused) if getattr(settings, name) is not None]
        lacking = [(name, "protocol" if name in absent else "model") for name in names]
        texts = [f"{name} is left out, because the {what} does not accept it" for name, what in lacking]
        texts.append(replaced_setting_text(settings, dialect.sent_thinking(request)))
        if not dialect.native_tools:
            texts.append("its calls are read from its text, because the model or its server does not support tools")
        for text in texts:
            self._report_once(request.model, text)

    def _report_once(self, model: str, text: str) -> None:
        """Log a text about a model, unless it is empty or was logged before."""
        report = f"{model}: {text}"
        if text and report not in self._reported and len(self._reported) < _MAX_MODELS:
            self._reported.add(report)
            _log.warning(report)

    def _first_wire(self, model: str) -> Wire:
        """Return the protocol to begin with, which another worker may have learned."""
        other = self._others.get(self._usual.path)
        return other if other is not None and self._known_dialect(self._usual, model).by_other else self._usual

    def _remember_wire(self, model: str, wire: Wire, instead_of: Wire | None = None) -> None:
        if len(self._wires) >= _MAX_MODELS:
            self._wires.clear()
        self._wires[model] = wire
        if instead_of is not None:
            for each, by_other in ((instead_of, True), (wire, False)):
                known = self._known_dialect(each, model)
                if known.by_other != by_other:
                    self._keep_dialect(each, model, replace(known, by_other=by_other))
