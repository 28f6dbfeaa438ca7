"""Vectors of the letters alone: nothing to install, nothing to load, the same on every machine."""

import asyncio
from collections.abc import Sequence
from functools import lru_cache
from hashlib import blake2b
from itertools import pairwise
from math import sqrt

from orga.activities.knowledge.vectors import normalised_vector
from orga.activities.knowledge.words import STOP_WORDS, text_words

DIMENSIONS = 256
_MAX_WORDS = 4_000
_FEW_WORDS = 8


class HashingEmbedder:
    """Counts runs of three and four letters, each at a place and with a sign that its hash gives.

    It finds what is spelled alike (restart and restarting), not what means the same.
    """

    @property
    def name(self) -> str:
        """It and the version of its rule."""
        return f"hashing-{DIMENSIONS}-v1"

    @property
    def dimensions(self) -> int:
        """Of each vector."""
        return DIMENSIONS

    async def embed(self, texts: Sequence[str]) -> list[list[float]]:
        """Return a vector of length 1 for each text (of nothing where it has no word)."""
        if len(texts) <= _FEW_WORDS:
            return [hashed_vector(text) for text in texts]
        return await asyncio.to_thread(lambda: [hashed_vector(text) for text in texts])


def hashed_vector(text: str) -> list[float]:
    """Return the vector of a text: of its words in any order, rarer ones weighing as much as common ones."""
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
