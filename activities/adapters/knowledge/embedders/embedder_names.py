"""The names of embedders in a configuration."""

from collections.abc import Collection

from orga.workflows.types.models.providers import PROVIDERS

HASHING = "hashing"
WORDLLAMA = "wordllama"

EMBEDDING_PROVIDERS = tuple(name for name, provider in PROVIDERS.items() if provider.has_embeddings)


def checked_embedder_name(name: str, endpoints: Collection[str] = ()) -> str:
    """Return the normalised name. Raise ValueError, which lists the allowed ones, if it is unknown.

    Args:
        endpoints: The endpoints of the configuration that are no provider's.
    """
    provider, colon, model = name.strip().partition(":")
    known = (*EMBEDDING_PROVIDERS, *endpoints)
    if name in (HASHING, WORDLLAMA) or (colon and provider in known and model.strip()):
        return f"{provider}{colon}{model.strip()}"
    raise ValueError(
        f"{name[:60]!r} names no embedder; allowed: {HASHING}, {WORDLLAMA}, or provider:model with provider one of "
        f"{', '.join(known)}"
    )
