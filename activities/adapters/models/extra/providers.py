"""Bedrock, Vertex and native Gemini, asked through the model classes of pydantic-ai: the optional extra `providers`.

The library knows the formats of these services. The rest is as for other providers: refusals teach what a model
accepts, tools are reshaped, failures have the same kinds. Two faults of the library are corrected: a reply without its
end mark is a failure, and two calls with one index stay two.

The library takes seconds and 100 MB to import, so that happens in a thread when the first of its models is asked.
"""

import asyncio
from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass, field
from functools import partial
from http import HTTPStatus
from importlib import import_module
from typing import TYPE_CHECKING, Any

from orga.activities.adapters.models.dialect import Dialect, LessonFile
from orga.activities.adapters.models.errors import Refusal
from orga.activities.adapters.models.http import ProviderEndpoint, trace_headers
from orga.activities.adapters.models.pricing import cost_usd
from orga.activities.adapters.models.reply import ReplyAssembly, frugal_usage
from orga.activities.adapters.models.streaming import StreamingProvider
from orga.activities.adapters.models.thinking import CLAUDE_MIN_TOKENS, ThinkingForm
from orga.activities.adapters.models.wire import Wire
from orga.activities.adapters.problem import extra_remedy
from orga.activities.ports import BlobStore, ModelError, ModelRequest
from orga.workflows.types.messages import FinishReason, Reply

if TYPE_CHECKING:
    from orga.activities.adapters.models.extra.pydantic_ai_models import Library

BEDROCK = "bedrock"

_FORMS: tuple[ThinkingForm, ...] = ("effort", "tokens")

_LIBRARY = "orga.activities.adapters.models.extra.pydantic_ai_models"

_BEDROCK_FIELDS = "bedrock_additional_model_requests_fields"

_CHOICES = {"any": "required", "none": "none"}

_FINISH_REASONS: dict[str | None, FinishReason] = {"length": "length", "content_filter": "content_filter"}


@dataclass(frozen=True)
class LibraryWire(Wire):
    """The requests of one provider, in the library's own form."""

    profile: Callable[[str], Mapping[str, Any]] = field(default=lambda model: {})
    """Returns what the library knows about a model. It is empty until the library is imported."""
    path = "/pydantic-ai"
    name_pattern = r"(?!)"

    def absent_settings(self, model: str) -> Set[str]:
        profile = self.profile(model)
        names = {"parallel_tool_calls", "seed"} if self.provider == BEDROCK else {"parallel_tool_calls", "cache_ttl"}
        no_sampling = ("anthropic_disallows_sampling_settings", "bedrock_disallows_sampling_settings")
        if any(profile.get(each) for each in no_sampling):
            names |= {"temperature", "top_p"}
        return names

    def dialect(self, model: str) -> Dialect:
        profile, is_bedrock = self.profile(model), self.provider == BEDROCK
        # for a model without levels the library sends a fixed number of tokens, which may leave no room for the answer
        if is_bedrock:
            takes_effort = "anthropic" not in model or bool(profile.get("bedrock_supports_adaptive_thinking", True))
            takes_tokens = "anthropic" in model
        else:
            takes_effort, takes_tokens = bool(profile.get("google_supports_thinking_level", True)), True
        taken = {"effort": takes_effort, "tokens": takes_tokens}
        return Dialect(
            response_format=bool(profile.get("supports_json_schema_output")),
            sure_schema=is_bedrock or bool(profile.get("google_supports_tool_combination")),
            strict_schema=is_bedrock,
            thinking_forms=tuple(form for form in _FORMS if taken[form]),
            thinking_levels=("none", "low", "medium", "high", "max"),
        )

    def body(self, request: ModelRequest, dialect: Dialect) -> dict[str, Any]:
        """Return the call's settings in the library's form. Messages and tools are passed to the library separately."""
        settings = dialect.settings(request).without(self.absent_settings(request.model))
        body = settings.given("temperature", "top_p", "seed", "service_tier")
        body |= {"max_tokens": dialect.output_tokens(request)} | self._thinking_fields(request, dialect)
        if stops := [stop for stop in settings.stop or () if stop.strip()]:
            body["stop_sequences"] = stops
        if request.tools and (choice := _CHOICES.get(dialect.tool_choice(request))):
            body["tool_choice"] = choice
        if self.provider == BEDROCK:
            body["cache"] = settings.cache_ttl or True
        return body

    def _thinking_fields(self, request: ModelRequest, dialect: Dialect) -> dict[str, Any]:
        sent = dialect.sent_thinking(request)
        if sent.form is None:
            return {}
        tokens = max(sent.tokens or 0, CLAUDE_MIN_TOKENS) if self.provider == BEDROCK else sent.tokens or 0
        if sent.is_off or tokens >= dialect.output_tokens(request):
            return {"thinking": False}
        if sent.effort is not None:
            return {"thinking": sent.effort}
        if self.provider != BEDROCK:
            return {"google_thinking_config": {"thinking_budget": tokens, "include_thoughts": True}}
        return {_BEDROCK_FIELDS: {"thinking": {"type": "enabled", "budget_tokens": tokens}}}


class LibraryProvider(StreamingProvider):
    def __init__(
        self,
        endpoint: ProviderEndpoint,
        env: Mapping[str, str],
        lessons: LessonFile | None = None,
        blobs: BlobStore | None = None,
    ) -> None:
        """Keep the endpoint, and the environment, which holds the credentials of AWS."""
        super().__init__(endpoint, LibraryWire(endpoint.provider, self._profile), lessons=lessons, blobs=blobs)
        self._env = env
        self._library: Library | None = None
        self._loading = asyncio.Lock()

    async def complete(self, request: ModelRequest, on_text: Callable[[str], None]) -> Reply:
        library = await self._load_library()
        try:
            library.model(request.model)
        except Exception as error:
            raise self._model_error(error) from error
        return await super().complete(request, on_text)

    async def check_reachable(self) -> None:
        """Check that the server answers. This costs nothing, and does not show if the credentials are accepted."""
        try:
            await self._http.check_reachable("/")
        except Refusal as error:
            if error.status >= HTTPStatus.INTERNAL_SERVER_ERROR:
                raise

    async def close(self) -> None:
        await super().close()
        if self._library is not None:
            await self._library.close()

    async def _load_library(self) -> "Library":
        async with self._loading:
            if self._library is not None:
                return self._library
            try:
                module = await asyncio.to_thread(import_module, _LIBRARY)
            except ImportError as error:  # only some of the libraries are installed, or other versions
                cause = f"orga[providers] is not installed completely, {error}: {extra_remedy('providers')}"
                raise self._http.failures.unusable(cause) from error
            try:
                self._library = library = await asyncio.to_thread(module.Library, self._endpoint, self._env)
            except Exception as error:  # faulty credentials: each library has other errors for them
                cause = f"{type(error).__name__} {error}"
                raise self._http.failures.unusable(cause, "AuthenticationFailed") from error
            return library

    def _profile(self, model: str) -> Mapping[str, Any]:
        return {} if self._library is None else self._library.model(model).profile

    def _model_error(self, error: Exception) -> ModelError:
        return import_module(_LIBRARY).model_error(error, self._http.failures)

    async def _attempt(
        self, wire: Wire, request: ModelRequest, dialect: Dialect, on_text: Callable[[str], None]
    ) -> Reply:
        library, failures = await self._load_library(), self._http.failures
        silence_s = request.settings.silence_s or self._endpoint.settings.silence_s
        headers = {**self._endpoint.headers, **trace_headers(self._endpoint.base_url)}
        settings = wire.body(request, dialect) | ({"extra_headers": headers} if headers else {})
        if extra := self._endpoint.settings.extra_body:
            settings[_BEDROCK_FIELDS] = extra | settings.get(_BEDROCK_FIELDS, {})
        assembly = ReplyAssembly(request, on_text)
        try:
            read = await library.read(request, settings, assembly, silence_s, thinking=dialect.thinking)
        except Exception as error:
            raise self._model_error(error) from error
        details = read.provider_details or {}
        end = details.get("finish_reason") or details.get("block_reason")
        if not end and not assembly.full:
            raise failures.bad_stream("cut off before its end")
        if read.finish_reason == "error":
            raise failures.bad_stream(f"the model wrote something that its provider cannot read: {end}")
        counted = read.usage
        usage = frugal_usage(
            counted.input_tokens,
            counted.output_tokens,
            cached_input_tokens=counted.cache_read_tokens,
            thinking_tokens=counted.details.get("thoughts_tokens", 0),
        )
        written = counted.cache_write_tokens
        tokens = {"cache_write_tokens": written, "hour_tokens": written if request.settings.cache_ttl == "1h" else 0}
        price = partial(cost_usd, self._endpoint.provider, request.model, **tokens)
        finish = _FINISH_REASONS.get(read.finish_reason, "stop")
        return assembly.reply(finish, usage, read.model_name or request.model, price)
