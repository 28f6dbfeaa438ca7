"""Creates an embedder from its configured name."""

from collections.abc import Mapping
from importlib.util import find_spec

from orga.activities.adapters.knowledge.embedders.hashing import HashingEmbedder
from orga.activities.adapters.knowledge.embedders.names import HASHING, WORDLLAMA, checked_embedder_name
from orga.activities.adapters.knowledge.embedders.provider import ProviderEmbedder
from orga.activities.adapters.knowledge.embedders.wordllama import WordLlamaEmbedder
from orga.activities.adapters.models.settings import provider_endpoint
from orga.activities.knowledge.ports import Embedder

_MISSING_EXTRA = "the embedder wordllama needs the extra: pip install 'orga[embeddings]'"


def configured_embedder(name: str, env: Mapping[str, str], base_urls: Mapping[str, str]) -> Embedder:
    """Return the embedder. It loads nothing and calls no provider yet.

    Args:
        name: The value of `[knowledge] embedder`.
        env: The environment, with the keys of providers.
        base_urls: Addresses by provider. They win over the environment's.

    Raises:
        ValueError: There is no such embedder, it is not installed, or its key or address is missing.
    """
    name = checked_embedder_name(name)
    if name == HASHING:
        return HashingEmbedder()
    if name == WORDLLAMA:
        if find_spec("wordllama") is None:
            raise ValueError(_MISSING_EXTRA)
        return WordLlamaEmbedder()
    provider, _, model = name.partition(":")
    return ProviderEmbedder(model, provider_endpoint(provider, env, base_urls))
