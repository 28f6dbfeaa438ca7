"""Asks models of Bedrock and Google through pydantic-ai ("the library"). `LibraryProvider` uses it.

`providers.py` imports this module in a thread, because the import takes seconds.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar, cast

import httpx2
from botocore.exceptions import BotoCoreError
from google.auth.exceptions import GoogleAuthError
from google.genai.errors import APIError
from pydantic_ai import exceptions as errors
from pydantic_ai import messages as theirs
from pydantic_ai.models import Model, ModelRequestParameters
from pydantic_ai.models.bedrock import BedrockConverseModel
from pydantic_ai.models.google import GoogleModel
from pydantic_ai.output import OutputObjectDefinition
from pydantic_ai.tools import ToolDefinition
from pydantic_core import to_json

from orga.activities.adapters import http
from orga.activities.adapters.models.errors import ProviderFailures
from orga.activities.adapters.models.extra.cloud_clients import (
    bedrock_client,
    bedrock_provider,
    exchange,
    google_client,
    google_provider,
)
from orga.activities.adapters.models.http import ProviderEndpoint
from orga.activities.adapters.models.kept_fields import block_part
from orga.activities.adapters.models.media import with_media_after_results
from orga.activities.adapters.models.reply import OpenCall, ReplyAssembly
from orga.activities.adapters.models.wire import alternating_turns, called_names, system_texts, wire_id, wire_name
from orga.activities.ports import LoadedMedia, ModelError, ModelRequest
from orga.workflows.types.json_text import as_object, as_text
from orga.workflows.types.messages import Message
from orga.workflows.types.parts import Block, OpaquePart, Parts, TextPart, ThinkingPart, ToolCall
from orga.workflows.types.text import clean_json

T = TypeVar("T")

THINKING = "pydantic_ai.thinking"
"""The format of a thought that is kept in the conversation."""

DETAILS = "pydantic_ai.details"
"""The format of a kept signature. It belongs to the text or call that follows it."""

_NO_OUTPUT = "[no output]"
"""Replaces a blank result, because Bedrock refuses blank texts."""

_MAX_MODELS = 256

_MAX_THINKING_CHARS = 8_000_000
"""Characters of the thinking in one reply. An endless thought would fill the memory."""


class Library:
    """The library's models of one provider, which share a client."""

    def __init__(self, endpoint: ProviderEndpoint, env: Mapping[str, str]) -> None:
        self._name = endpoint.provider
        self._models: dict[str, Model[Any]] = {}
        self._is_bedrock = endpoint.provider == "bedrock"
        if self._is_bedrock:
            self._client, self._provider = bedrock_client(endpoint), bedrock_provider(endpoint, env)
        else:
            self._client = google_client(endpoint.base_url)
            self._provider = google_provider(endpoint, env, self._client)

    def model(self, name: str) -> Model[Any]:
        """Return a model of the library. If the library cannot ask that model, it raises UserError."""
        if name not in self._models:
            if len(self._models) >= _MAX_MODELS:
                self._models.clear()
            model_class = BedrockConverseModel if self._is_bedrock else GoogleModel
            self._models[name] = model_class(name, provider=cast("Any", self._provider))
        return self._models[name]

    async def close(self) -> None:
        await self._client.aclose()

    async def read(
        self, request: ModelRequest, settings: dict[str, Any], assembly: ReplyAssembly, silence_s: float, thinking: bool
    ) -> theirs.ModelResponse:
        """Ask a model, add the pieces of its reply to `assembly`, and return the library's own form of the reply.

        Args:
            settings: The settings of the call, in the library's form.
            silence_s: Seconds without a byte after which the call fails.
            thinking: True to send earlier thinking back, if the model accepts that.
        """
        model = self.model(request.model)
        takes_thinking = not self._is_bedrock or bool(model.profile.get("bedrock_send_back_thinking_parts"))
        sent = _Conversation(self._name, model.system, thinking and takes_thinking).messages(request)
        if not self._is_bedrock:  # for Bedrock, `exchange` sets the timeout
            settings = settings | {"timeout": silence_s}
        parameters, choice = _parameters(request)
        reader = _Reader(self._name, assembly)
        try:
            async with (
                exchange(self._client, silence_s),
                model.request_stream(sent, cast("Any", settings | choice), parameters) as stream,
            ):
                async for event in stream:
                    reader.feed(event)
                    if assembly.full:
                        break
                response = stream.get()
        except errors.UserError:
            if settings.get("tool_choice") != "required":
                raise
            # The library refused before it sent anything, because this model cannot be forced to make calls. So ask
            # without force. The loop notices if the reply has no calls.
            return await self.read(request, settings | {"tool_choice": "auto"}, assembly, silence_s, thinking)
        reader.keep_blocks(response.parts)
        return response


@dataclass
class _Reader:
    _provider: str
    _assembly: ReplyAssembly
    _blocks: dict[int, dict[str, Any]] = field(default_factory=dict[int, dict[str, Any]])
    """By index of the library's part: a block for its thought or signature. The reply leaves out empty blocks."""
    _calls: dict[int, OpenCall] = field(default_factory=dict[int, OpenCall])
    _thinking_chars_left: int = _MAX_THINKING_CHARS

    def feed(self, event: theirs.ModelResponseStreamEvent) -> None:
        if isinstance(event, theirs.PartStartEvent):
            self._begin(event.index, event.part)
        elif isinstance(event, theirs.PartDeltaEvent):
            delta = event.delta
            if isinstance(delta, theirs.TextPartDelta):
                self._assembly.add_text(delta.content_delta)
            elif isinstance(delta, theirs.ThinkingPartDelta):
                self._show_thinking(event.index, delta.content_delta)
            elif isinstance(delta, theirs.ToolCallPartDelta):
                self._add_arguments(event.index, delta.args_delta)

    def keep_blocks(self, parts: Iterable[theirs.ModelResponsePart]) -> None:
        """Fill the blocks from the complete parts, which are in the order of their indexes."""
        blocks = [self._blocks[index] for index in sorted(self._blocks)]
        for block, part in zip(blocks, parts, strict=False):
            if isinstance(part, theirs.ThinkingPart):
                named = {"signature": part.signature, "id": part.id, "details": part.provider_details}
                fields = {name: value for name, value in named.items() if value}
                if fields or self._provider != "bedrock":  # without a signature Bedrock refuses a thought
                    block.update(fields, type=THINKING, provider=self._provider, text=part.content)
            elif isinstance(part, (theirs.TextPart, theirs.ToolCallPart)):
                details = part.provider_details or {}
                if signature := details.get("thought_signature"):
                    block.update(type=DETAILS, provider=self._provider, thought_signature=signature)

    def _begin(self, index: int, part: theirs.ModelResponsePart) -> None:
        if index not in self._blocks:
            block = self._blocks[index] = dict[str, Any]()
            self._assembly.add_blocks(lambda: [block_part(clean_json(block))] if block else [])
        if isinstance(part, theirs.TextPart):
            self._assembly.begin_text()
            self._assembly.add_text(part.content)
        elif isinstance(part, theirs.ThinkingPart):
            self._show_thinking(index, part.content)
        elif isinstance(part, theirs.ToolCallPart):
            call_id = self._assembly.take_within_room(part.tool_call_id)
            call = OpenCall(call_id=call_id, name=self._assembly.take_within_room(part.tool_name))
            if self._assembly.open_call(call):
                self._calls[index] = call
                self._add_arguments(index, part.args)

    def _show_thinking(self, index: int, piece: str | None) -> None:
        self._thinking_chars_left -= len(piece or "")
        self._assembly.full = self._assembly.full or self._thinking_chars_left < 0
        self._assembly.show_thinking(piece or "", index)

    def _add_arguments(self, index: int, arguments: object) -> None:
        if index in self._calls and arguments:
            text = arguments if isinstance(arguments, str) else to_json(arguments).decode()
            self._assembly.add_arguments(self._calls[index], text)


def _parameters(request: ModelRequest) -> tuple[ModelRequestParameters, dict[str, Any]]:
    """Return the tools with the form of the reply, and the settings for the tool choice.

    If the request has no tools, those of earlier calls are declared and forbidden.
    """
    called = [] if request.tools else called_names(request)
    choice: dict[str, Any] = {"tool_choice": "none"} if called else {}
    tools = [ToolDefinition(name=name, parameters_json_schema={"type": "object"}) for name in called]
    for tool in request.tools:
        schema = {"type": "object"} | tool.parameters
        tools.append(ToolDefinition(name=tool.name, description=tool.description, parameters_json_schema=schema))
    if request.output_schema is None:
        return ModelRequestParameters(function_tools=tools), choice
    form = OutputObjectDefinition(json_schema=request.output_schema)
    return ModelRequestParameters(function_tools=tools, output_mode="native", output_object=form), choice


@dataclass(frozen=True)
class _Conversation:
    _provider: str
    """Our name of the provider."""
    _system: str
    """The library's name of the provider. The library sends back only thoughts that are marked with it."""
    _sends_thinking: bool

    def messages(self, request: ModelRequest) -> list[theirs.ModelMessage]:
        """Return all system texts, and then alternating turns."""
        names = {call.call_id: call.name for message in request.messages for call in message.calls}

        def parts(message: Message) -> Iterator[Any]:
            return self._reply_parts(message) if message.role == "assistant" else _given_parts(message, names)

        system = [theirs.SystemPromptPart(text) for text in system_texts(request)]
        turns = alternating_turns(with_media_after_results(request.messages), parts, theirs.UserPromptPart)
        messages: list[theirs.ModelMessage] = [theirs.ModelRequest(system)] if system else []
        for is_reply, content in turns:
            if is_reply:
                messages.append(theirs.ModelResponse(content, provider_name=self._system))
            else:
                messages.append(theirs.ModelRequest(content))
        return messages

    def _reply_parts(self, message: Message) -> Iterator[theirs.ModelResponsePart]:
        details: dict[str, Any] | None = None
        for part in message.parts:
            if isinstance(part, ThinkingPart) and self._is_sent_back(part, THINKING):
                yield theirs.ThinkingPart(
                    part.text,
                    id=part.data.get("id"),
                    signature=part.data.get("signature"),
                    provider_name=self._system,
                    provider_details=part.data.get("details"),
                )
            elif isinstance(part, OpaquePart) and self._is_sent_back(part, DETAILS):
                details = {"thought_signature": part.data.get("thought_signature")}
            elif isinstance(part, ToolCall):
                yield theirs.ToolCallPart(
                    wire_name(part.name),
                    part.arguments,
                    wire_id(part.call_id),
                    provider_name=self._system,
                    provider_details=details,
                )
                details = None
            elif isinstance(part, TextPart) and part.text.strip():
                yield theirs.TextPart(part.text, provider_name=self._system, provider_details=details)
                details = None
        if details is not None:  # Gemini signs an empty text at the end
            yield theirs.TextPart("", provider_name=self._system, provider_details=details)

    def _is_sent_back(self, part: Block, format: str) -> bool:
        is_from_provider = part.format == format and part.data.get("provider") == self._provider
        return is_from_provider and self._sends_thinking


def _given_parts(message: Message, names: Mapping[str, str]) -> Iterator[theirs.ModelRequestPart]:
    """Yield a tool's result, or the user's text and media. The providers refuse blank texts."""
    if message.role == "tool":
        yield theirs.ToolReturnPart(
            wire_name(names.get(message.call_id or "") or message.tool or ""),
            message.text if message.text.strip() else _NO_OUTPUT,
            wire_id(message.call_id),
            outcome="failed" if message.is_error else "success",
        )
    elif message.media:
        yield theirs.UserPromptPart([*_user_contents(message.parts)])
    elif message.text.strip():
        yield theirs.UserPromptPart(message.text)


def _user_contents(parts: Parts) -> Iterator[theirs.UserContent]:
    for part in parts:
        if isinstance(part, TextPart) and part.text.strip():
            yield part.text
        elif isinstance(part, LoadedMedia):
            yield theirs.BinaryContent(part.data, media_type=part.media_type)


_STATUSES = (
    (errors.ModelQuotaExceededError, 402),
    (errors.ModelRateLimitError, 429),
    (errors.ModelUnavailableError, 503),
    (errors.ModelServerError, 500),
    (errors.ModelNotFoundError, 404),
)
"""The usual HTTP status of each kind of failure. Both services also use other statuses for the same kinds."""

_KEY_CODES = frozenset({"unrecognizedclientexception", "invalidsignatureexception", "expiredtokenexception"})
"""Codes of AWS for refused credentials, which have status 403."""


def model_error(error: Exception, failures: ProviderFailures) -> ModelError:
    if transport := next(filter(None, map(_transport_error, _causes(error))), None):
        return failures.from_transport(transport, reading=not isinstance(transport, http.ConnectError))
    if isinstance(error, errors.ModelHTTPError):
        return _refusal(error, failures)
    if isinstance(error.__cause__, APIError) and 300 <= error.__cause__.code < 400:  # redirects are not followed
        return failures.from_response(error.__cause__.code, {}, "")
    if isinstance(error, GoogleAuthError) and cast("Any", error).retryable:  # the server that issues tokens is silent
        return failures.from_transport(http.ConnectError(str(error)), reading=False)
    if isinstance(error, (GoogleAuthError, BotoCoreError, errors.UserError)) or type(error) is ValueError:
        # google-genai raises a plain ValueError for a model's name that cannot be in an address
        is_key = isinstance(error, GoogleAuthError) or re.search("Credential|Token", type(error).__name__)
        return failures.unusable(str(error), "AuthenticationFailed" if is_key else "InvalidRequest")
    return failures.bad_stream(f"{type(error).__name__} {error}")


def _transport_error(error: BaseException) -> http.HTTPError | None:
    """Return the error of HTTP as our own client would raise it."""
    if isinstance(error, httpx2.TimeoutException):
        return http.TimeoutException(f"{type(error).__name__} {error}")
    if isinstance(error, httpx2.ConnectError):
        return http.ConnectError(str(error))
    if isinstance(error, httpx2.HTTPError):
        return http.NetworkError(f"{type(error).__name__} {error}")
    return error if isinstance(error, http.HTTPError) else None


def _refusal(error: errors.ModelHTTPError, failures: ProviderFailures) -> ModelError:
    status, code = error.status_code, error.provider_error_code or ""
    if status < 500:  # other statuses stay as they are
        status = next((usual for kind, usual in _STATUSES if isinstance(error, kind)), status)
    if code.lower() in _KEY_CODES or (status == 400 and isinstance(error, errors.ModelAuthenticationError)):
        status = 401
    body = as_object(error.body)
    if aws := as_object(body.get("Error")):
        body = {"error": {"message": as_text(aws.get("Message")), "code": code}}
    refusal = failures.from_response(status, error.headers or {}, json.dumps(body, default=str))
    refusal.in_stream = error.in_stream
    return refusal


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__
