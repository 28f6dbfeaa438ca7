"""The names of embedders in a configuration."""

from orga.workflows.types.models.providers import PROVIDERS

HASHING = "hashing"
WORDLLAMA = "wordllama"

EMBEDDING_PROVIDERS = tuple(name for name, provider in PROVIDERS.items() if provider.has_embeddings)


def checked_embedder_name(name: str) -> str:
    """Return the normalised name. Raise ValueError, which lists the allowed ones, if it is unknown."""
    provider, colon, model = name.strip().partition(":")
    if name in (HASHING, WORDLLAMA) or (colon and provider in EMBEDDING_PROVIDERS and model.strip()):
        return f"{provider}{colon}{model.strip()}"
    raise ValueError(
        f"{name[:60]!r} names no embedder; allowed: {HASHING}, {WORDLLAMA}, or provider:model with provider one of "
        f"{', '.join(EMBEDDING_PROVIDERS)}"
    )
