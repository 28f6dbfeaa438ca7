"""Embedders in this process, offline: hashed words, and the small WordLlama model that its package contains."""

import asyncio
from collections.abc import Sequence
from functools import cache, cached_property, lru_cache
from hashlib import blake2b
from importlib.metadata import version
from itertools import pairwise
from math import sqrt
from pathlib import Path
from typing import Any

from orga.activities.adapters.knowledge.embedders.embedder_names import WORDLLAMA
from orga.activities.knowledge.ports import KnowledgeError
from orga.activities.knowledge.vectors import normalised_vector
from orga.activities.knowledge.words import STOP_WORDS, text_words

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
