"""Reads each provider's address and key from the usual environment variables."""

import re
from collections.abc import Mapping
from urllib.parse import urlsplit

from orga.activities.adapters.models.http import ProviderEndpoint
from orga.workflows.types.models.endpoints import DEFAULT_ENDPOINT, EndpointSettings
from orga.workflows.types.models.providers import DEFAULT_PROVIDERS, PROVIDERS, Provider


class ModelNotConfigured(ValueError):
    """A model cannot be used with this configuration. The text is one line with cause and remedy."""


EMBEDDED_MODEL = "offline:extractive"

_MODEL_SETTING = re.compile(
    r"ORGA_(MODELS__.+|GOALS__TIERS.*|KNOWLEDGE__EMBEDDER|AGENTS__(?!.*__).+|AGENTS__.+__(MODEL|CRITICS.*))", re.I
)
"""Variables that choose who gets a prompt or a text, including one that sets a whole agent."""
_OLLAMA_PORT = 11434


def default_model(env: Mapping[str, str]) -> str:
    """Return `provider:model` of the first key that is set, or the embedded reader if none is."""
    for provider in DEFAULT_PROVIDERS:
        if _env_value(env, provider.key):
            return f"{provider.name}:{_env_value(env, provider.model) or provider.default_model}"
    return EMBEDDED_MODEL


def named_models(env: Mapping[str, str]) -> dict[str, str]:
    """Return an environment's settings of models, by variable. A key's value is replaced by the model it chooses."""
    found = {
        provider.base_url: address
        for provider in PROVIDERS.values()
        if provider.is_remote and (address := _env_value(env, provider.base_url).rstrip("/"))
    }
    found |= {name: value for name, value in env.items() if _MODEL_SETTING.fullmatch(name)}
    if (model := default_model(env)) != EMBEDDED_MODEL:
        found[PROVIDERS[model.partition(":")[0]].key] = model
    return found


def idle_addresses(env: Mapping[str, str]) -> list[str]:
    """Return a text for each variable with a model server that is not used: a key is missing, or a model's name."""
    without_key = [
        f"{provider.base_url} is set and {provider.key} is not, so {provider.name} is not used by default. Set "
        "the key (to any text if the server needs none), or name the model: provider:model"
        for provider in DEFAULT_PROVIDERS
        if _env_value(env, provider.base_url) and not _env_value(env, provider.key)
    ]
    without_model = [
        f"{provider.base_url} is set, but no model of {provider.name} is named, so it is not used by default. "
        f"Name the model: {provider.name}:MODEL"
        for provider in PROVIDERS.values()
        if provider not in DEFAULT_PROVIDERS and provider.is_remote and _env_value(env, provider.base_url)
    ]
    return without_key + without_model


def provider_endpoint(
    name: str,
    env: Mapping[str, str],
    base_urls: Mapping[str, str],
    settings: EndpointSettings = DEFAULT_ENDPOINT,
) -> ProviderEndpoint:
    """Return a provider's endpoint; the config's base URL wins. Raise ModelNotConfigured for a faulty variable."""
    provider = PROVIDERS[name]
    key = _provider_key(provider, env)
    extra = {header.lower(): value for header, value in settings.extra_headers.items()}
    headers = extra | _headers_from(name, settings, env) | _provider_headers(name, key, env)
    url = _base_url(provider, env, base_urls)
    return ProviderEndpoint(name, url, headers=headers, secret=key, settings=settings)


def _headers_from(name: str, settings: EndpointSettings, env: Mapping[str, str]) -> dict[str, str]:
    """Return the headers whose values are in variables."""
    found: dict[str, str] = {}
    for header, variable in settings.headers_from.items():
        value = _env_value(env, variable)
        if not value or not value.isascii() or not value.isprintable():
            raise ModelNotConfigured(f"{name}: the header {header} needs {variable}, which is not set: set it")
        found[header.lower()] = value
    return found


def _provider_key(provider: Provider, env: Mapping[str, str]) -> str:
    key = _env_value(env, provider.key)
    if provider.needs_key and not key:
        raise ModelNotConfigured(f"{provider.name} has no key: set {provider.key}, or choose another model")
    if not key.isascii() or not key.isprintable():
        raise ModelNotConfigured(f"{provider.key} holds characters that no key has: set it again")
    return key


def _provider_headers(provider: str, key: str, env: Mapping[str, str]) -> dict[str, str]:
    if provider == "anthropic":
        from orga.activities.adapters.models.anthropic import API_VERSION  # every command imports this module

        return {"x-api-key": key, "anthropic-version": API_VERSION}
    headers = {"authorization": f"Bearer {key}"} if key else {}
    if provider == "openrouter":
        named = {"http-referer": _env_value(env, "OPENROUTER_REFERER"), "x-title": _env_value(env, "OPENROUTER_TITLE")}
        headers |= {name: value for name, value in named.items() if value.isascii() and value}
    return headers


def _base_url(provider: Provider, env: Mapping[str, str], base_urls: Mapping[str, str]) -> str:
    stated = base_urls.get(provider.name, "").strip() or _env_value(env, provider.base_url)
    url = (_ollama_url(stated) if provider.name == "ollama" and stated else stated or provider.default_url).rstrip("/")
    if provider.name in {"anthropic", "ollama"} and not url.endswith("/v1"):
        url += "/v1"
    if not url:
        raise ModelNotConfigured(f"{provider.name} has no address: set [models] base_urls or {provider.base_url}")
    if not _is_http(url):
        raise ModelNotConfigured(f"{provider.base_url} is no http(s) address: write it like https://host/v1")
    return url


def _ollama_url(host: str) -> str:
    """Read `OLLAMA_HOST` as Ollama does. Scheme and port may be missing, and 0.0.0.0 means this machine."""
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
