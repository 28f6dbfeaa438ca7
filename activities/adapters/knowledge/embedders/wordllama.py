"""Small real embeddings in this process, offline. The weights are part of the package."""

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
    """Averages the vectors of tokens. It knows that a reboot is a restart, but ignores the order of words."""

    @property
    def name(self) -> str:
        """The embedder's name with the package version, since each version has its own weights."""
        return f"{WORDLLAMA}-{version('wordllama')}"

    @property
    def dimensions(self) -> int:
        """Length of each vector."""
        return DIMENSIONS

    async def embed(self, texts: Sequence[str]) -> list[list[float]]:
        """Return a vector of length 1 for each text, computed outside the event loop.

        Raises:
            KnowledgeError: The package has no weights.
        """
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
    """Return the package's own model.

    Raises:
        KnowledgeError: The package has no weights.
    """
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
            f"the weights of wordllama cannot be loaded ({error}); reinstall it: "
            "pip install --force-reinstall 'orga[embeddings]'",
            kind="Unreachable",
        ) from error
