"""Gets vectors from a provider's `/v1/embeddings`, which OpenAI, Ollama, OpenRouter and most local servers offer."""

import asyncio
import json
from collections.abc import Iterator, Sequence
from typing import Any, cast

from orga.activities.adapters import http
from orga.activities.adapters.models.errors import ProviderFailures
from orga.activities.adapters.models.http import ProviderEndpoint
from orga.activities.knowledge.ports import KnowledgeError
from orga.activities.knowledge.vectors import normalised_vector
from orga.activities.ports import ModelError
from orga.workflows.types.json_text import as_object, as_objects

BATCH_TEXTS = 64
BATCH_CHARS = 100_000
"""Characters of one request. Providers limit the tokens of all its texts together."""

MAX_TEXT_CHARS = 20_000
"""Characters of one text. Of a longer one only the beginning counts. Models accept 8,000 tokens."""

MAX_ANSWER_BYTES = 32_000_000
"""Bytes of one answer: 64 vectors of 16,000 numbers."""

MAX_ERROR_BYTES = 100_000

REQUEST_S = 60.0

_MAX_NUMBER = 1e18
"""The largest number in a vector. Beyond it the vector's length cannot be computed."""

_TRY_AGAIN_TEXT = "the store is unchanged: try again, or choose another [knowledge] embedder"


class ProviderEmbedder:
    """Requests the vectors of many texts at once. It does not retry, because its caller's activity is retried."""

    def __init__(self, model: str, place: ProviderEndpoint, transport: http.AsyncBaseTransport | None = None) -> None:
        """Keep the model's name at the provider, and the provider's address."""
        self._model = model
        self._place = place
        self._transport = transport
        self._failures = ProviderFailures(place.provider, place.secret, place.base_url)
        self.name = f"{place.provider}:{model}"
        self.dimensions: int = 0
        """Length of each vector, or 0 before the first one."""

    async def embed(self, texts: Sequence[str]) -> list[list[float]]:
        """Return a vector of length 1 for each text. Raise KnowledgeError if the provider fails."""
        found: list[list[float]] = []
        try:
            # A new client for each call, so that the owner of an embedder has nothing to close.
            async with http.http_client(self._place.base_url, transport=self._transport, silence_s=REQUEST_S) as client:
                for batch in request_batches(texts):
                    found += await self._vectors(client, batch)
        except ModelError as error:
            raise KnowledgeError(f"{error}; {_TRY_AGAIN_TEXT}", kind=error.kind, retryable=error.retryable) from error
        return found

    async def _vectors(self, client: http.AsyncClient, batch: list[str]) -> list[list[float]]:
        status, headers, body = await self._ask(client, {"model": self._model, "input": batch})
        if status != 200:
            raise self._failures.from_response(status, headers, body.decode("utf-8", "replace"))
        try:
            vectors = [normalised_vector(vector) for vector in _parsed_vectors(body, len(batch))]
        except (ValueError, RecursionError) as error:
            raise self._failures.bad_stream(f"no vectors: {error}") from None
        sizes = {len(vector) for vector in vectors} | ({self.dimensions} - {0})
        if len(sizes) != 1:
            raise self._failures.bad_stream(f"vectors of several lengths: {', '.join(map(str, sorted(sizes)))}")
        self.dimensions = sizes.pop()
        return vectors

    async def _ask(self, client: http.AsyncClient, request: dict[str, Any]) -> tuple[int, http.Headers, bytes]:
        url, headers = self._place.url("/embeddings"), dict(self._place.headers)
        is_reading = False
        try:
            async with (
                asyncio.timeout(REQUEST_S),
                client.stream("POST", url, json=request, headers=headers, follow_redirects=False) as response,
            ):
                is_reading = True
                limit = MAX_ANSWER_BYTES if response.status_code == 200 else MAX_ERROR_BYTES
                return response.status_code, response.headers, await self._body(response, limit)
        except TimeoutError:
            raise ModelError(
                "Timeout", f"{self._place.provider}: no vectors within {REQUEST_S:g} s", retryable=True
            ) from None
        except (http.HTTPError, http.InvalidURL) as error:
            raise self._failures.from_transport(error, reading=is_reading) from None

    async def _body(self, response: http.Response, limit: int) -> bytes:
        body = bytearray()
        async for piece in response.aiter_bytes():
            body += piece
            if len(body) > limit:
                raise self._failures.too_large(f"more than {limit:,} bytes")
        return bytes(body)


def request_batches(texts: Sequence[str]) -> Iterator[list[str]]:
    """Yield the texts in order, in requests that providers accept. They refuse an empty text, so it becomes a blank."""
    batch: list[str] = []
    chars = 0
    for text in texts:
        sent = text[:MAX_TEXT_CHARS] or " "
        if batch and (len(batch) == BATCH_TEXTS or chars + len(sent) > BATCH_CHARS):
            yield batch
            batch, chars = [], 0
        batch.append(sent)
        chars += len(sent)
    if batch:
        yield batch


def _parsed_vectors(body: bytes, wanted: int) -> list[list[float]]:
    """Return the vectors in the order of the texts, not of the body. Raise ValueError if one is missing."""
    items = as_objects(as_object(json.loads(body)).get("data"))
    by_index = {str(item.get("index", at)): item.get("embedding") for at, item in enumerate(items)}
    vectors = [by_index.get(str(at)) for at in range(wanted)]
    if len(items) != wanted or not all(_is_vector(vector) for vector in vectors):
        raise ValueError(f"{len(items)} of {wanted} are there, or they are not lists of numbers")
    return [[float(value) for value in vector] for vector in vectors if vector is not None]


def _is_vector(value: object) -> bool:
    """Return whether a value is a list of finite numbers. NaN and too large numbers are refused."""
    numbers = cast("list[object]", value) if isinstance(value, list) else []
    return bool(numbers) and all(map(_is_number, numbers))


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) < _MAX_NUMBER
