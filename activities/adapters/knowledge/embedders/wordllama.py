"""Small true embeddings in this process, offline: the weights come with the package."""

import asyncio
from collections.abc import Sequence
from functools import cache, cached_property
from importlib.metadata import version
from pathlib import Path
from typing import Any

from orga.activities.adapters.knowledge.embedders.names import WORDLLAMA
from orga.activities.knowledge.ports import KnowledgeError
from orga.activities.knowledge.vectors import normalised_vector

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
        return [normalised_vector(self._model.embed([text])[0].tolist()) for text in texts]

    @cached_property
    def _model(self) -> Any:
        return load_model()


@cache
def load_model() -> Any:
    """Return the package's own model.

    Raises:
        KnowledgeError: The package is there without its weights.
    """
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
