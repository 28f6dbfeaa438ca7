"""The providers of models as one table: keys, addresses, default models, prices."""

import re
from collections.abc import Collection
from dataclasses import dataclass
from typing import Literal

from orga.workflows.types.text import similar_name_hint

Api = Literal["chat", "responses", "messages"]
"""A protocol: OpenAI's Chat Completions or Responses, or Anthropic's Messages."""


@dataclass(frozen=True)
class Provider:
    """One provider. Its variables are names of environment variables."""

    name: str
    """The part of `provider:model` before the colon."""
    key: str = ""
    """Variable of the API key."""
    base_url: str = ""
    """Variable of the address."""
    default_url: str = ""
    needs_key: bool = True
    api: Api = "chat"
    model: str = ""
    """Variable of the model that is used if no model is configured and the key is set."""
    default_model: str = ""
    """Used if that variable is not set: a model in the middle of the provider's range. A test checks it against the
    provider's own library."""
    has_list_prices: bool = False
    """True if a model's name determines its price. At other providers the same name may have another price."""
    price_list: str = ""
    """The provider's name in the price list, if it has another one there."""
    second_key: str = ""
    """Variable of the key if the first one is not set."""
    is_extra: bool = False
    """True if its library belongs to the optional extra `providers`."""
    regions: tuple[str, ...] = ()
    """Variables of the region, which its usual address contains."""
    bills_replies: bool = False
    """True if each reply states its cost."""
    has_embeddings: bool = False
    """True if it serves `/v1/embeddings`."""

    @property
    def is_remote(self) -> bool:
        """False if its models run in the worker itself, for free."""
        return bool(self.base_url or self.default_url)


CODE = "code"
"""The provider of the models and critics that an application gives its worker as objects."""

PROVIDERS = {
    provider.name: provider
    for provider in (
        Provider(
            "openrouter",
            "OPENROUTER_API_KEY",
            "OPENROUTER_BASE_URL",
            "https://openrouter.ai/api/v1",
            model="OPENROUTER_MODEL",
            default_model="anthropic/claude-sonnet-5.5",
            has_list_prices=True,
            bills_replies=True,
            has_embeddings=True,
        ),
        Provider(
            "openai",
            "OPENAI_API_KEY",
            "OPENAI_BASE_URL",
            "https://api.openai.com/v1",
            api="responses",
            model="CHAT_MODEL",
            default_model="gpt-6.1-terra",
            has_list_prices=True,
            has_embeddings=True,
        ),
        Provider(
            "anthropic",
            "ANTHROPIC_API_KEY",
            "ANTHROPIC_BASE_URL",
            "https://api.anthropic.com/v1",
            api="messages",
            model="ANTHROPIC_MODEL",
            default_model="claude-sonnet-5-5",
            has_list_prices=True,
        ),
        Provider(
            "ollama",
            "OLLAMA_API_KEY",
            "OLLAMA_HOST",
            "http://127.0.0.1:11434/v1",
            needs_key=False,
            has_embeddings=True,
        ),
        Provider(
            "openai-compatible",
            "OPENAI_COMPATIBLE_API_KEY",
            "OPENAI_COMPATIBLE_BASE_URL",
            needs_key=False,
            has_embeddings=True,
        ),
        Provider(
            "bedrock",
            "AWS_BEARER_TOKEN_BEDROCK",
            "AWS_ENDPOINT_URL_BEDROCK_RUNTIME",
            "https://bedrock-runtime.{region}.amazonaws.com",
            needs_key=False,  # AWS has other credentials, too
            has_list_prices=True,
            price_list="aws",
            is_extra=True,
            regions=("AWS_REGION", "AWS_DEFAULT_REGION"),
        ),
        Provider(
            "gemini",
            "GEMINI_API_KEY",
            "GOOGLE_GEMINI_BASE_URL",
            "https://generativelanguage.googleapis.com",
            second_key="GOOGLE_API_KEY",
            has_list_prices=True,
            price_list="google",
            is_extra=True,
        ),
        Provider(
            "vertex",
            "GOOGLE_API_KEY",
            "GOOGLE_VERTEX_BASE_URL",
            "https://aiplatform.googleapis.com",
            needs_key=False,  # a project and the credentials of Google Cloud are usual
            has_list_prices=True,
            price_list="google",
            is_extra=True,
        ),
        Provider("local", needs_key=False),
        Provider("offline", needs_key=False),
        Provider(CODE, needs_key=False),
    )
}
"""The providers by name. The first one that has a key provides the default model."""

DEFAULT_PROVIDERS = tuple(provider for provider in PROVIDERS.values() if provider.default_model)
"""Those that provide a default model, in order."""


def model_name_problem(name: str, endpoints: Collection[str] = ()) -> str:
    """Return why the name is not `provider:model` with a known provider or one of the endpoints, or ""."""
    provider, colon, model = name.strip().partition(":")
    if colon and model.strip() and (provider in PROVIDERS or provider in endpoints):
        return ""
    near = similar_name_hint(provider.strip(), (*PROVIDERS, *endpoints)) if colon else ""
    own = f", or an endpoint: {', '.join(endpoints)}" if endpoints else ""
    return f"{name!r} names no model: {near}write provider:model, with provider one of {', '.join(PROVIDERS)}{own}"


_MODEL_NAME = re.compile(r"(?!tier:)[a-z][a-z0-9_-]*:\s*\S.*", re.DOTALL)


def model_form_problem(name: str) -> str:
    """Return why the name lacks the form of a model's name, or "". This needs no list of endpoints."""
    return "" if _MODEL_NAME.fullmatch(name.strip()) else model_name_problem(name)


HASHING = "hashing"
WORDLLAMA = "wordllama"

_EMBEDDING_PROVIDERS = tuple(name for name, provider in PROVIDERS.items() if provider.has_embeddings)


def checked_embedder_name(name: str, endpoints: Collection[str] = ()) -> str:
    """Return the normalised name. Raise ValueError, which lists the allowed ones, if it is unknown.

    Args:
        endpoints: Names of endpoints that belong to no provider.
    """
    provider, colon, model = name.strip().partition(":")
    known = (*_EMBEDDING_PROVIDERS, *endpoints)
    if name in (HASHING, WORDLLAMA) or (colon and provider in known and model.strip()):
        return f"{provider}{colon}{model.strip()}"
    raise ValueError(
        f"{name[:60]!r} names no embedder; allowed: {HASHING}, {WORDLLAMA}, or provider:model with provider one of "
        f"{', '.join(known)}"
    )
