"""Finds or creates the provider of a `provider:model` name, for all parts of a worker."""

import asyncio
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import cast

from orga.activities.adapters import http
from orga.activities.adapters.models.anthropic.messages_api import AnthropicMessages
from orga.activities.adapters.models.dialect import Dialect, LessonFile, dialect_at
from orga.activities.adapters.models.errors import redacted_text
from orga.activities.adapters.models.extra.providers import LibraryProvider, LibraryWire
from orga.activities.adapters.models.http import ProviderEndpoint
from orga.activities.adapters.models.media import TextOnlyProvider
from orga.activities.adapters.models.model_settings import (
    EMBEDDED_MODEL,
    ModelNotConfigured,
    default_model,
    provider_endpoint,
    provider_kind,
)
from orga.activities.adapters.models.ollama import OllamaProvider
from orga.activities.adapters.models.openai.chat_completions import OpenAIChat
from orga.activities.adapters.models.openai.responses_api import OpenAIResponses
from orga.activities.adapters.models.pricing import PricedProvider, is_priced, listed_window
from orga.activities.adapters.models.streaming import StreamingProvider
from orga.activities.adapters.models.thinking import chat_thinking
from orga.activities.adapters.models.wire import Wire
from orga.activities.ports import BlobStore, ModelError, ModelProvider, ModelRequest
from orga.workflows.types.messages import Reply
from orga.workflows.types.models.endpoints import DEFAULT_ENDPOINT, EndpointSettings, own_endpoints
from orga.workflows.types.models.providers import CODE, PROVIDERS, Provider, model_name_problem
from orga.workflows.types.models.usage import ModelPrice
from orga.workflows.types.text import one_line

__all__ = ["ModelNotConfigured", "ModelRegistry", "default_model"]

REACHABILITY_TIMEOUT_S = 5.0
"""Seconds that `unreachable_reason` waits for the provider."""

MAX_ERROR_CHARS = 1_000


class ModelRegistry:
    """The providers of one worker. Each is created when it is first needed, and kept."""

    def __init__(
        self,
        env: Mapping[str, str],
        base_urls: Mapping[str, str] | None = None,
        transport: http.AsyncBaseTransport | None = None,
        *,
        prices: Mapping[str, ModelPrice] | None = None,
        in_code: Mapping[str, ModelProvider] | None = None,
        endpoints: Mapping[str, EndpointSettings] | None = None,
        lessons: Path | None = None,
        blobs: BlobStore | None = None,
    ) -> None:
        """Keep the environment and the config.

        Args:
            base_urls: Addresses by provider. They win over the environment's.
            prices: Prices by `provider:model`. They win over those of endpoints.
            in_code: The application's own models, by the name after `code:`.
            endpoints: Settings by provider, and endpoints of the configuration's own.
            lessons: The file with what models have refused. None: only this process remembers.
            blobs: The store of pictures and documents. Without it, models get words instead.
        """
        self._blobs = blobs
        self._env = env
        self._base_urls = base_urls or {}
        self._transport = transport
        self._prices = prices or {}
        self._in_code = in_code or {}
        self._endpoints = endpoints or {}
        self._lessons = LessonFile(lessons) if lessons else None
        self._remote: dict[str, StreamingProvider] = {}
        self._embedded: dict[str, ModelProvider] = {}

    def resolve(self, name: str) -> tuple[ModelProvider, str]:
        """Return the provider and the model's name there. Raise ModelNotConfigured if key or address is missing."""
        if problem := model_name_problem(name, own_endpoints(self._endpoints)):
            raise ModelNotConfigured(problem)
        provider_name, _, model = map(str.strip, name.partition(":"))
        if provider_name == CODE:
            provider = self._own_provider(model)
        elif provider_name in PROVIDERS and not PROVIDERS[provider_name].is_remote:
            provider = self._embedded_provider(provider_name, model)
        else:
            provider = self._remote_provider(provider_name)
        price = self._stated_price(provider_name, model)
        return PricedProvider(provider, price) if price else provider, model

    def check(self, name: str) -> None:
        self.resolve(name)

    def is_priced(self, name: str) -> bool:
        provider, _, model = map(str.strip, name.partition(":"))
        if self._stated_price(provider, model) is not None:
            return True
        return is_priced(provider_kind(provider, self._settings(provider)), model)

    async def unreachable_reason(self, name: str) -> str:
        """Return why the model's provider cannot be asked now, or "". This generates nothing and costs nothing."""
        self.resolve(name)
        provider = self._remote.get(name.strip().partition(":")[0])
        if provider is None:
            return ""
        try:
            async with asyncio.timeout(REACHABILITY_TIMEOUT_S):
                await provider.check_reachable()
        except TimeoutError:
            return f"no answer within {REACHABILITY_TIMEOUT_S:g} s"
        except ModelError as error:
            return str(error)
        return ""

    async def context_window(self, name: str) -> int | None:
        """Return a model's context window in tokens, or None if nobody states it in time. This generates nothing."""
        provider, _, model = name.strip().partition(":")
        settings = self._settings(provider)
        if settings.context_window is not None:
            return settings.context_window
        if provider not in self._endpoints and (provider not in PROVIDERS or not PROVIDERS[provider].is_remote):
            return None
        kind = PROVIDERS.get(provider_kind(provider, settings))
        if kind is not None and kind.has_list_prices:
            return await asyncio.to_thread(listed_window, kind.name, model)
        try:
            return await self._remote_provider(provider).context_window(model)
        except ModelNotConfigured:
            return None

    async def context_shortage(self, name: str) -> str:
        """Return why a model has too little context for an agent, with the remedy, or "". Only Ollama is asked."""
        self.resolve(name)
        provider_name, _, model = name.strip().partition(":")
        provider = self._remote.get(provider_name)
        return (await provider.context(model)).shortage if isinstance(provider, OllamaProvider) else ""

    async def close(self) -> None:
        remote, self._remote = self._remote, {}
        for provider in remote.values():
            await provider.close()

    def _remote_provider(self, provider: str) -> StreamingProvider:
        if provider not in self._remote:
            endpoint = provider_endpoint(provider, self._env, self._base_urls, self._settings(provider))
            try:
                self._remote[provider] = self._new_provider(endpoint)
            except (ValueError, ImportError) as error:  # a faulty proxy, whose address may hold a password
                cause = redacted_text(str(error))
                text = f"{provider} can't be reached through the proxy that is set: {cause}"
                raise ModelNotConfigured(text) from error
        return self._remote[provider]

    def _new_provider(self, endpoint: ProviderEndpoint) -> StreamingProvider:
        wire, other = _wires(endpoint)
        if isinstance(wire, LibraryWire):
            return LibraryProvider(endpoint, self._env, self._lessons, self._blobs)
        kind = OllamaProvider if endpoint.kind == "ollama" else StreamingProvider
        return kind(endpoint, wire, self._transport, other=other, lessons=self._lessons, blobs=self._blobs)

    def _settings(self, provider: str) -> EndpointSettings:
        return self._endpoints.get(provider, DEFAULT_ENDPOINT)

    def _stated_price(self, provider: str, model: str) -> ModelPrice | None:
        return self._prices.get(f"{provider}:{model}", self._settings(provider).price)

    def _own_provider(self, model: str) -> ModelProvider:
        if model not in self._in_code:
            known = ", ".join(f"{CODE}:{name}" for name in self._in_code) or "none"
            raise ModelNotConfigured(f"'{CODE}:{model}' was not given to this worker in code; it was given: {known}")
        return TextOnlyProvider(CodeModel(model, self._in_code[model]))

    def _embedded_provider(self, provider: str, model: str) -> ModelProvider:
        """Return a provider without an address. Its module needs an extra, so it is imported here."""
        name = f"{provider}:{model}"
        if name not in self._embedded:
            if provider == "local":
                from orga.activities.adapters.offline.local_model import LocalProvider

                own: ModelProvider = LocalProvider(model)
            elif name == EMBEDDED_MODEL:
                from orga.activities.adapters.offline.reader import ExtractiveProvider

                own = ExtractiveProvider()
            else:
                raise ModelNotConfigured(f"'{name}' names no model: the offline one is {EMBEDDED_MODEL}")
            self._embedded[name] = TextOnlyProvider(own)
        return self._embedded[name]


class CodeModel:
    """A model that the application has written. Any exception of it is a failure of the model, and is retried.

    A result that is not a `Reply` is not retried, because the same code would return it again.
    """

    def __init__(self, name: str, own: ModelProvider) -> None:
        self._name, self._own = name, own

    async def complete(self, request: ModelRequest, on_text: Callable[[str], None]) -> Reply:
        try:
            reply = await self._own.complete(request, on_text)
        except ModelError:
            raise
        except Exception as error:
            raise self._failure(f"{type(error).__name__}: {error}") from error
        if not isinstance(cast("object", reply), Reply):
            raise self._failure(f"it returned {type(reply).__name__}, not an orga.ports.Reply", retryable=False)
        return reply

    def _failure(self, why: str, *, retryable: bool = True) -> ModelError:
        message = one_line(f"{CODE}:{self._name} failed: {why}", MAX_ERROR_CHARS)
        return ModelError("ServerError", message, retryable=retryable)


def _wires(endpoint: ProviderEndpoint) -> tuple[Wire, Wire | None]:
    """Return a provider's protocol, and the one to change to if the provider points to it."""
    kind = endpoint.kind
    if kind in PROVIDERS and PROVIDERS[kind].is_extra:
        return LibraryWire(kind), None
    if endpoint.api == "messages":
        return AnthropicMessages(kind), None
    chat, responses = OpenAIChat(kind, chat_thinking(kind, endpoint.base_url)), OpenAIResponses(kind)
    return (responses, chat) if endpoint.api == "responses" else (chat, responses)


def provider_dialect(provider: Provider, model: str, base_url: str, settings: EndpointSettings) -> Dialect:
    """Return the dialect of a remote provider's model before its first refusal. It needs no key."""
    kind = provider_kind(provider.name, settings)
    wire, _ = _wires(ProviderEndpoint(provider.name, base_url, settings=settings, kind=kind, api=provider.api))
    return dialect_at(wire.dialect(model), settings)
