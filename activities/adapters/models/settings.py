"""Where each provider is and which key opens it, from the environment's usual names."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

from orga.activities.adapters.models.http import ProviderEndpoint


class ModelNotConfigured(ValueError):
    """A model that can't be used as things are. Its text is one line: the cause and the remedy."""


@dataclass(frozen=True)
class ProviderSite:
    """The environment names and defaults of one provider."""

    provider: str
    key: str = ""
    base_url: str = ""
    default_url: str = ""
    needs_key: bool = True


PROVIDER_SITES = {
    site.provider: site
    for site in (
        ProviderSite("openrouter", "OPENROUTER_API_KEY", "OPENROUTER_BASE_URL", "https://openrouter.ai/api/v1"),
        ProviderSite("openai", "OPENAI_API_KEY", "OPENAI_BASE_URL", "https://api.openai.com/v1"),
        ProviderSite("anthropic", "ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL", "https://api.anthropic.com/v1"),
        ProviderSite("ollama", "OLLAMA_API_KEY", "OLLAMA_HOST", "http://127.0.0.1:11434/v1", needs_key=False),
        ProviderSite("openai-compatible", "OPENAI_COMPATIBLE_API_KEY", "OPENAI_COMPATIBLE_BASE_URL", needs_key=False),
    )
}

DEFAULT_MODELS = (
    ("openrouter", "OPENROUTER_MODEL", "anthropic/claude-sonnet-5.5"),
    ("openai", "CHAT_MODEL", "gpt-6.1-terra"),
    ("anthropic", "ANTHROPIC_MODEL", "claude-sonnet-5-5"),
)
"""Provider, the variable that names its model, and the model otherwise: one in the middle of what is sold today. A test
holds them against the tables of the providers' own libraries."""

EMBEDDED_MODEL = "offline:extractive"

_MODEL_SETTING = re.compile(
    r"ORGA_(MODELS__.+|GOALS__TIERS.*|KNOWLEDGE__EMBEDDER|AGENTS__(?!.*__).+|AGENTS__.+__(MODEL|CRITICS.*))", re.I
)
"""Variables that choose who is sent a prompt or a text: also one that sets all of an agent."""
_OLLAMA_PORT = 11434


def default_model(env: Mapping[str, str]) -> str:
    """Return `provider:model` of the first key that is set, the embedded reader when none is."""
    for provider, variable, fallback in DEFAULT_MODELS:
        if _env_value(env, PROVIDER_SITES[provider].key):
            return f"{provider}:{_env_value(env, variable) or fallback}"
    return EMBEDDED_MODEL


def named_models(env: Mapping[str, str]) -> dict[str, str]:
    """Return what an environment says about models, by variable; of a key only the model that it chooses."""
    found = {
        site.base_url: address
        for site in PROVIDER_SITES.values()
        if (address := _env_value(env, site.base_url).rstrip("/"))
    }
    found |= {name: value for name, value in env.items() if _MODEL_SETTING.fullmatch(name)}
    if (model := default_model(env)) != EMBEDDED_MODEL:
        found[PROVIDER_SITES[model.partition(":")[0]].key] = model
    return found


def idle_addresses(env: Mapping[str, str]) -> list[str]:
    """Return the variables that name a server for models which nobody asks, since its provider has no key."""
    sites = [PROVIDER_SITES[provider] for provider, *_ in DEFAULT_MODELS]
    return [
        f"{site.base_url} is set and {site.key} is not, so {site.provider} is not taken by itself; set the key (any "
        "word where the server wants none), or name the model: provider:model"
        for site in sites
        if _env_value(env, site.base_url) and not _env_value(env, site.key)
    ]


def provider_endpoint(provider: str, env: Mapping[str, str], base_urls: Mapping[str, str]) -> ProviderEndpoint:
    """Return the endpoint of a provider in `SITES`; a base URL of the config wins over the environment's.

    Raises:
        ModelNotConfigured: Naming the variable that is missing or wrong.
    """
    site = PROVIDER_SITES[provider]
    key = _provider_key(site, env)
    return ProviderEndpoint(
        provider, _base_url(site, env, base_urls), headers=_provider_headers(provider, key, env), secret=key
    )


def _provider_key(site: ProviderSite, env: Mapping[str, str]) -> str:
    key = _env_value(env, site.key)
    if site.needs_key and not key:
        raise ModelNotConfigured(f"{site.provider} has no key: set {site.key}, or choose another model")
    if not key.isascii() or not key.isprintable():
        raise ModelNotConfigured(f"{site.key} holds characters that no key has: set it anew")
    return key


def _provider_headers(provider: str, key: str, env: Mapping[str, str]) -> dict[str, str]:
    if provider == "anthropic":
        from orga.activities.adapters.models.anthropic import API_VERSION  # every command asks `named_models`

        return {"x-api-key": key, "anthropic-version": API_VERSION}
    headers = {"authorization": f"Bearer {key}"} if key else {}
    if provider == "openrouter":
        named = {"http-referer": _env_value(env, "OPENROUTER_REFERER"), "x-title": _env_value(env, "OPENROUTER_TITLE")}
        headers |= {name: value for name, value in named.items() if value.isascii() and value}
    return headers


def _base_url(site: ProviderSite, env: Mapping[str, str], base_urls: Mapping[str, str]) -> str:
    stated = base_urls.get(site.provider, "").strip() or _env_value(env, site.base_url)
    url = (_ollama_url(stated) if site.provider == "ollama" and stated else stated or site.default_url).rstrip("/")
    if site.provider in {"anthropic", "ollama"} and not url.endswith("/v1"):
        url += "/v1"
    if not url:
        raise ModelNotConfigured(f"{site.provider} has no address: set [models] base_urls or {site.base_url}")
    if not _is_http(url):
        raise ModelNotConfigured(f"{site.base_url} is no http(s) address: write it like https://host/v1")
    return url


def _ollama_url(host: str) -> str:
    """Read `OLLAMA_HOST` as Ollama does: scheme and port may be missing, and 0.0.0.0 is where it listens."""
    url = host if "://" in host else f"http://{host}"
    try:
        parts = urlsplit(url)
        port = parts.port or (None if "://" in host else _OLLAMA_PORT)
    except ValueError:
        return ""
    name = "127.0.0.1" if parts.hostname in {None, "0.0.0.0", "::"} else str(parts.hostname)
    place = f"[{name}]" if ":" in name else name
    return f"{parts.scheme}://{place}{f':{port}' if port else ''}{parts.path}"


def _is_http(url: str) -> bool:
    try:
        parts = urlsplit(url)
        return parts.scheme in {"http", "https"} and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        return False


def _env_value(env: Mapping[str, str], name: str) -> str:
    return env.get(name, "").strip() if name else ""
