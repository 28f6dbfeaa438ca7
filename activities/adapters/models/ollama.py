"""The provider for Ollama, which silently cuts a request that exceeds the context that its model was loaded with.

Requests use the OpenAI-compatible API, which can neither state nor set that context. Ollama's native API at the same
server states it: `/api/show` has the size in the Modelfile, and `/api/ps` has the size of a loaded model.
"""

import asyncio
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from math import ceil

from orga.activities.adapters import http
from orga.activities.adapters.models.dialect import (
    BYTES_PER_TOKEN,
    MARGIN,
    MIN_OUTPUT_TOKENS,
    LessonFile,
    request_bytes,
)
from orga.activities.adapters.models.http import ProviderEndpoint
from orga.activities.adapters.models.streaming import WINDOW_TIMEOUT_S, LastingValues, StreamingProvider
from orga.activities.adapters.models.wire import Wire
from orga.activities.ports import BlobStore, ModelError, ModelRequest
from orga.workflows.types.json_text import as_count, as_object, as_objects, as_text
from orga.workflows.types.messages import Reply

ENOUGH_TOKENS = 65_536
"""Tokens of context that are enough for an agent. Ollama's guide recommends 64,000."""

_CONTEXT_S = 60.0
"""Seconds for which a stated context counts. The model may be loaded again with another context."""

_NUM_CTX = re.compile(r"^num_ctx\s+(\d+)", re.MULTILINE)

_LEAST_SHARE, _MOST_SHARE = 0.7, 3.0
"""Bounds for counted tokens, as a share of the estimate. Servers may not count tokens that are in their cache."""


@dataclass(frozen=True)
class OllamaContext:
    """The context of one model, in tokens for input and output together."""

    served: int | None = None
    """The context that requests get. None if it is unknown: the model is not loaded, and its Modelfile sets none."""
    whole: int | None = None
    """The context that the model was trained for. None if the server does not state it."""
    is_of_modelfile: bool = False
    """True if the Modelfile sets a context."""

    @property
    def shortage(self) -> str:
        """The problem and its remedy if an agent gets less than half of the context that is enough, or ""."""
        enough = min(self.whole or ENOUGH_TOKENS, ENOUGH_TOKENS)
        if self.served is None or self.served >= enough // 2:
            return ""
        whole = f" of its {self.whole:,}" if self.whole else ""
        change = f"set PARAMETER num_ctx {enough} in its Modelfile"
        if not self.is_of_modelfile:
            change = f"start Ollama with OLLAMA_CONTEXT_LENGTH={enough}, or {change}"
        return f"Ollama serves the model with a context of {self.served:,} tokens{whole}. For more, {change}"


class OllamaProvider(StreamingProvider):
    """Refuses a request that Ollama would cut, so that the run shortens its conversation itself."""

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
        super().__init__(endpoint, wire, transport, other=other, lessons=lessons, blobs=blobs)
        self._native = f"{endpoint.base_url.partition('?')[0].removesuffix('/v1')}/api"
        self._contexts = LastingValues[str, OllamaContext]()
        self._tokens_per_byte: dict[str, float] = {}

    async def context(self, model: str, *, again: bool = False) -> OllamaContext:
        """Return the context of a model, at most a minute old. It is empty if the server does not state it in time."""
        context = None if again else self._contexts.get(model)
        if context is None:
            try:
                async with asyncio.timeout(WINDOW_TIMEOUT_S):
                    context = await self._read_context(model)
            except (ModelError, TimeoutError):
                context = OllamaContext()
            self._contexts.keep(model, context, _CONTEXT_S)
            self._report_once(f"{self._endpoint.provider}:{model}", context.shortage)
        return context

    async def context_window(self, model: str) -> int | None:
        """Return the tokens of the context that requests get, or None if it is unknown."""
        return (await self.context(model)).served

    async def complete(self, request: ModelRequest, on_text: Callable[[str], None]) -> Reply:
        """Return the reply to the whole request.

        Raise ModelError also if Ollama would cut the request, or if it has cut it while it loaded the model.
        """
        context = await self.context(request.model)
        reply = await super().complete(self._fitted(request, context), on_text)
        if context.served is None and context.whole is not None:  # the model was not loaded, and now it is
            context = await self.context(request.model, again=True)
            self._fitted(request, context)
        self._learn_size(request, reply, context)
        return reply

    async def _read_context(self, model: str) -> OllamaContext:
        loaded = await self._http.read_object(f"{self._native}/ps")
        names = {model, f"{model}:latest"}
        running = (
            as_count(each.get("context_length"))
            for each in as_objects(loaded.get("models"))
            if names & {as_text(each.get("name")), as_text(each.get("model"))}
        )
        shown = await self._http.read_object(f"{self._native}/show", {"model": model})
        sizes = (value for key, value in as_object(shown.get("model_info")).items() if key.endswith(".context_length"))
        whole = as_count(next(sizes, None)) or None
        of_modelfile = _NUM_CTX.search(as_text(shown.get("parameters")))
        served = next(running, 0)
        if not served and of_modelfile:
            served = int(of_modelfile[1])
        if not served and shown.get("remote_host"):  # a cloud model has its whole context
            served = whole or 0
        return OllamaContext(served or None, whole, of_modelfile is not None)

    def _fitted(self, request: ModelRequest, context: OllamaContext) -> ModelRequest:
        """Return the request with an output limit that fits into the context. Raise ModelError if none does."""
        if context.served is None:
            return request
        used = self._input_tokens(request)
        room = context.served - used
        if room < min(request.max_output_tokens, MIN_OUTPUT_TOKENS):
            name = f"{self._endpoint.provider}:{request.model}"
            text = f"{name}: about {used:,} tokens do not fit, and Ollama would cut them silently. {context.shortage}"
            raise ModelError("ContextOverflow", text.strip(), retryable=False)
        return replace(request, max_output_tokens=min(request.max_output_tokens, room))

    def _input_tokens(self, request: ModelRequest) -> int:
        return ceil(request_bytes(request) * self._tokens_per_byte.get(request.model, 1 / BYTES_PER_TOKEN))

    def _learn_size(self, request: ModelRequest, reply: Reply, context: OllamaContext) -> None:
        """Learn the model's tokens per byte from a reply to a request that was certainly not cut."""
        counted = reply.usage.input_tokens
        # the estimate may be too low, so a request near the limit may have been cut
        if reply.usage.estimated or not counted or self._input_tokens(request) > (context.served or 0) * 0.8:
            return
        share = counted * MARGIN / request_bytes(request) * BYTES_PER_TOKEN
        self._tokens_per_byte[request.model] = min(max(share, _LEAST_SHARE), _MOST_SHARE) / BYTES_PER_TOKEN
