"""Embedders: two in this process (hashed words, and the small WordLlama model), and those of providers.

OpenAI, Ollama, OpenRouter and most local servers offer `/v1/embeddings`.
"""

import asyncio
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cache
from hashlib import blake2b
from importlib.metadata import version
from itertools import pairwise
from math import sqrt
from pathlib import Path
from typing import Any, TypeGuard, cast

from orga.activities.adapters import http
from orga.activities.adapters.models.http import ProviderEndpoint, ProviderHttp
from orga.activities.knowledge.ports import KnowledgeError
from orga.activities.knowledge.vectors import normalised_vector
from orga.activities.knowledge.words import STOP_WORDS, cached_by_word, text_words
from orga.activities.ports import ModelError
from orga.workflows.types.json_text import as_objects
from orga.workflows.types.models.providers import WORDLLAMA

DIMENSIONS = 256
_MAX_WORDS = 4_000  # words of a text that are read
_FEW_TEXTS = 8
"""Texts that are embedded in the event loop. More of them need a thread."""


class HashingEmbedder:
    """Counts runs of three and four letters, and pairs of words. The hash of each decides its position and its sign.

    It finds similar spelling (restart and restarting), not similar meaning.
    """

    dimensions = DIMENSIONS

    @property
    def name(self) -> str:
        return f"hashing-{DIMENSIONS}-v1"

    async def embed(self, texts: Sequence[str]) -> list[list[float]]:
        """Return a vector of length 1 for each text, or a zero vector for a text without words."""
        if len(texts) <= _FEW_TEXTS:
            return [hashed_vector(text) for text in texts]
        return await asyncio.to_thread(lambda: [hashed_vector(text) for text in texts])


def hashed_vector(text: str) -> list[float]:
    """Return the vector of a text. Stop words do not count. The order of words matters only for their pairs."""
    counts = Counter[str]()
    words = [word for word in text_words(text)[:_MAX_WORDS] if word not in STOP_WORDS]
    for word in words:
        framed = f"<{word}>"
        for size in (3, 4):
            counts.update(framed[start : start + size] for start in range(max(1, len(framed) - size + 1)))
    counts.update(map(" ".join, pairwise(words)))
    vector = [0.0] * DIMENSIONS
    for part, count in counts.items():
        hashed = _hashed_part(part)
        vector[hashed % DIMENSIONS] += sqrt(count) if hashed & 0x8000_0000 else -sqrt(count)
    return normalised_vector(vector)


@cached_by_word
def _hashed_part(part: str) -> int:
    return int.from_bytes(blake2b(part.encode("utf-8", "replace"), digest_size=4).digest(), "big")


class WordLlamaEmbedder:
    """Averages the vectors of tokens. It knows that a reboot is a restart, but ignores the order of words."""

    dimensions = DIMENSIONS

    @property
    def name(self) -> str:
        """The embedder's name with the package version, because each version has its own weights."""
        return f"{WORDLLAMA}-{version('wordllama')}"

    async def embed(self, texts: Sequence[str]) -> list[list[float]]:
        """Return a vector of length 1 for each text, computed outside the event loop."""
        return await asyncio.to_thread(self._vectors, list(texts))

    def _vectors(self, texts: list[str]) -> list[list[float]]:
        if not texts:
            return []
        # One by one, because the digits of a vector must not depend on the other texts of a batch.
        return [normalised_vector(_load_model().embed([text])[0].tolist()) for text in texts]


@cache
def _load_model() -> Any:
    """Raise KnowledgeError if the package has no weights."""
    import wordllama  # an extra. Loading takes a tenth of a second and 16 MB.

    try:
        return wordllama.WordLlama.load(
            # The library's default is a folder that the package does not have. Then it downloads the weights.
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
"""Characters of one text. Only the beginning of a longer one is sent. Models accept 8,000 tokens."""

MAX_ANSWER_BYTES = 32_000_000
"""Bytes of one answer: 64 vectors of 16,000 numbers."""

REQUEST_S = 60.0
"""Seconds for one request."""

_MAX_NUMBER = 1e18
"""The largest number in a vector. The length of a vector with a larger one cannot be computed."""

_TRY_AGAIN_TEXT = "the store is unchanged: try again, or choose another [knowledge] embedder"


class ProviderEmbedder:
    """Requests the vectors of many texts at once. It does not retry, because its caller's activity is retried."""

    def __init__(
        self, model: str, endpoint: ProviderEndpoint, transport: http.AsyncBaseTransport | None = None
    ) -> None:
        self._model = model
        self._endpoint = endpoint
        self._transport = transport
        self.name = f"{endpoint.provider}:{model}"
        self.dimensions: int = 0
        """Length of each vector, or 0 before the first one."""

    async def embed(self, texts: Sequence[str]) -> list[list[float]]:
        """Return a vector of length 1 for each text. Raise KnowledgeError if the provider fails."""
        found: list[list[float]] = []
        # A new client for each call, so that the owner of an embedder has nothing to close.
        client = ProviderHttp(self._endpoint, self._transport)
        try:
            for batch in request_batches(texts):
                found += await self._vectors(client, batch)
        except ModelError as error:
            raise KnowledgeError(f"{error}; {_TRY_AGAIN_TEXT}", kind=error.kind, retryable=error.retryable) from error
        finally:
            await client.close()
        return found

    async def _vectors(self, client: ProviderHttp, batch: list[str]) -> list[list[float]]:
        url, request = self._endpoint.url("/embeddings"), {"model": self._model, "input": batch}
        try:
            async with asyncio.timeout(REQUEST_S):
                answer = await client.read_object(url, request, limit=MAX_ANSWER_BYTES)
        except TimeoutError:
            text = f"{self._endpoint.provider}: no vectors within {REQUEST_S:g} s"
            raise ModelError("Timeout", text, retryable=True) from None
        items = as_objects(answer.get("data"))
        by_index = {str(item.get("index", at)): item.get("embedding") for at, item in enumerate(items)}
        given = [by_index.get(str(at)) for at in range(len(batch))]  # in the order of the texts, not of the answer
        vectors = [normalised_vector(vector) for vector in given if _is_vector(vector)]
        if not len(items) == len(vectors) == len(batch):
            count = f"{len(items)} of {len(batch)}"
            raise client.failures.bad_stream(f"no vectors: {count} are there, or they are not lists of numbers")
        sizes = {len(vector) for vector in vectors} | ({self.dimensions} - {0})
        if len(sizes) != 1:
            raise client.failures.bad_stream(f"vectors of several lengths: {', '.join(map(str, sorted(sizes)))}")
        self.dimensions = sizes.pop()
        return vectors


def request_batches(texts: Sequence[str]) -> Iterator[list[str]]:
    """Yield the texts in order, in requests that providers accept. A blank replaces an empty text: they refuse it."""
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


def _is_vector(value: object) -> TypeGuard[list[float]]:
    """Return whether a value of JSON is a list of numbers. NaN and too large numbers are refused."""
    numbers = cast("list[Any]", value) if isinstance(value, list) else []
    return bool(numbers) and all(type(each) in {int, float} and abs(each) < _MAX_NUMBER for each in numbers)
