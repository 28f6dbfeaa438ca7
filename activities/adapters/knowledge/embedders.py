"""Embedders: two in this process (hashed words, and the small WordLlama model), and those of providers.

OpenAI, Ollama, OpenRouter and most local servers offer `/v1/embeddings`.
"""

import asyncio
import json
from collections.abc import Iterator, Sequence
from functools import cache, cached_property, lru_cache
from hashlib import blake2b
from importlib.metadata import version
from itertools import pairwise
from math import sqrt
from pathlib import Path
from typing import Any, cast

from orga.activities.adapters import http
from orga.activities.adapters.models.errors import ProviderFailures
from orga.activities.adapters.models.http import ProviderEndpoint
from orga.activities.knowledge.ports import KnowledgeError
from orga.activities.knowledge.vectors import normalised_vector
from orga.activities.knowledge.words import STOP_WORDS, text_words
from orga.activities.ports import ModelError
from orga.workflows.types.json_text import as_object, as_objects
from orga.workflows.types.models.providers import WORDLLAMA

DIMENSIONS = 256
_MAX_WORDS = 4_000
_FEW_WORDS = 8


class HashingEmbedder:
    """Counts runs of three and four letters. A run's hash decides its position and its sign.

    It finds similar spelling (restart and restarting), not similar meaning.
    """

    dimensions = DIMENSIONS

    @property
    def name(self) -> str:
        """The embedder's name and the version of its rule."""
        return f"hashing-{DIMENSIONS}-v1"

    async def embed(self, texts: Sequence[str]) -> list[list[float]]:
        """Return a vector of length 1 for each text, or a zero vector for a text without words."""
        if len(texts) <= _FEW_WORDS:
            return [hashed_vector(text) for text in texts]
        return await asyncio.to_thread(lambda: [hashed_vector(text) for text in texts])


def hashed_vector(text: str) -> list[float]:
    """Return the vector of a text. The order of words does not count, and all words weigh the same."""
    counts: dict[str, int] = {}
    words = [word for word in text_words(text)[:_MAX_WORDS] if word not in STOP_WORDS]
    for word in words:
        for part in _letter_runs(word):
            counts[part] = counts.get(part, 0) + 1
    for pair in pairwise(words):
        joined = " ".join(pair)
        counts[joined] = counts.get(joined, 0) + 1
    vector = [0.0] * DIMENSIONS
    for part, count in counts.items():
        place = _hashed_index(part)
        vector[place % DIMENSIONS] += sqrt(count) if place & 0x8000_0000 else -sqrt(count)
    return normalised_vector(vector)


@lru_cache(maxsize=65_536)
def _hashed_index(part: str) -> int:
    return int.from_bytes(blake2b(part.encode("utf-8", "replace"), digest_size=4).digest(), "big")


def _letter_runs(word: str) -> list[str]:
    framed = f"<{word}>"
    return [framed[start : start + size] for size in (3, 4) for start in range(max(1, len(framed) - size + 1))]


class WordLlamaEmbedder:
    """Averages the vectors of tokens. It knows that a reboot is a restart, but ignores the order of words."""

    dimensions = DIMENSIONS

    @property
    def name(self) -> str:
        """The embedder's name with the package version, since each version has its own weights."""
        return f"{WORDLLAMA}-{version('wordllama')}"

    async def embed(self, texts: Sequence[str]) -> list[list[float]]:
        """Return a vector of length 1 for each text, computed outside the event loop."""
        return await asyncio.to_thread(self._vectors, list(texts))

    def _vectors(self, texts: list[str]) -> list[list[float]]:
        if not texts:
            return []
        # One by one, because the digits of a vector must not depend on the other texts of a batch.
        return [normalised_vector(self._model.embed([text])[0].tolist()) for text in texts]

    @cached_property
    def _model(self) -> Any:
        return load_model()


@cache
def load_model() -> Any:
    """Raise KnowledgeError if the package has no weights."""
    import wordllama  # an extra. Loading takes a tenth of a second and 16 MB.

    try:
        return wordllama.WordLlama.load(
            # Its own default looks into a folder that the package does not have, and then downloads the weights.
            cache_dir=Path(wordllama.__file__).parent,
            disable_download=True,
            dim=DIMENSIONS,
        )
    except (OSError, ValueError) as error:
        raise KnowledgeError(
            f"the weights of wordllama cannot be loaded ({error}); run: pip install --force-reinstall wordllama",
            kind="Unreachable",
        ) from error


_BATCH_TEXTS = 64
_BATCH_CHARS = 100_000
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
        if batch and (len(batch) == _BATCH_TEXTS or chars + len(sent) > _BATCH_CHARS):
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
