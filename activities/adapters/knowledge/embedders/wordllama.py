"""Small true embeddings in this process, offline: the weights come with the package."""

import asyncio
import re
from collections.abc import Sequence
from functools import cache, cached_property
from importlib.metadata import version
from pathlib import Path
from typing import Any

from orga.activities.adapters.knowledge.embedders.names import WORDLLAMA
from orga.activities.knowledge.ports import KnowledgeError
from orga.activities.knowledge.vectors import normalised

DIMENSIONS = 256


class WordLlamaEmbedder:
    """Averages of the vectors of tokens: it knows that a reboot is a restart, and no order of words."""

    @property
    def name(self) -> str:
        """With the version, whose weights they are."""
        return f"{WORDLLAMA}-{version('wordllama')}"

    @property
    def dimensions(self) -> int:
        """Of each vector."""
        return DIMENSIONS

    async def embed(self, texts: Sequence[str]) -> list[list[float]]:
        """Return a vector of length 1 for each text, made outside the event loop.

        Raises:
            KnowledgeError: The package is there without its weights.
        """
        return await asyncio.to_thread(self._vectors, list(texts))

    def _vectors(self, texts: list[str]) -> list[list[float]]:
        if not texts:
            return []
        # One by one: the digits of a vector must not depend on what it is made beside.
        return [normalised(self._model.embed([text])[0].tolist()) for text in texts]

    @cached_property
    def _model(self) -> Any:
        return _loaded()


NEAR = 0.57
"""Cosine from which two words mean nearly the same: `film` and `movie` have 0.84, `halt` and `stop` 0.61."""
_WHOLE = re.compile("▁[a-z]{3,}")
"""Tokens that are whole words."""


def near_words(word: str) -> tuple[str, ...]:
    """Return the words of its vocabulary that are nearest to a word of it, nearest first; none for any other word.

    Raises:
        KnowledgeError: The package is there without its weights.
    """
    tokens, vectors = _vocabulary()
    if f"▁{word}" not in tokens:
        return ()
    place = tokens[f"▁{word}"]
    likeness: list[float] = (vectors @ vectors[place]).tolist()
    order = sorted(range(len(likeness)), key=lambda one: -likeness[one])[:_LOOKED_AT]
    nearest = [one for one in order if likeness[one] >= NEAR and one != place]
    names = list(tokens)
    return tuple(names[one][1:] for one in nearest)


_LOOKED_AT = 16


@cache
def _vocabulary() -> tuple[dict[str, int], Any]:
    """Return its whole words by place, and their vectors of length 1."""
    model = _loaded()
    ids = {token: number for token, number in sorted(model.tokenizer.get_vocab().items()) if _WHOLE.fullmatch(token)}
    vectors = model.embedding[list(ids.values())]
    lengths = (vectors * vectors).sum(axis=1, keepdims=True) ** 0.5
    return {token: place for place, token in enumerate(ids)}, vectors / lengths


@cache
def _loaded() -> Any:
    import wordllama  # an extra; loading takes a tenth of a second and 16 MB

    try:
        return wordllama.WordLlama.load(
            # Its own default looks into a folder that the package does not have, and then asks the network.
            cache_dir=Path(wordllama.__file__).parent,
            disable_download=True,
            dim=DIMENSIONS,
        )
    except (OSError, ValueError) as error:
        raise KnowledgeError(
            f"the weights of wordllama cannot be loaded ({error}); install it anew: "
            "pip install --force-reinstall 'orga[embeddings]'",
            kind="Unreachable",
        ) from error
