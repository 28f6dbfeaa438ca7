"""Reads the default model, and each provider's address and key, from the usual environment variables."""

import re
from collections.abc import Mapping
from importlib.util import find_spec
from urllib.parse import urlsplit, urlunsplit

from orga.activities.adapters.models.http import ProviderEndpoint
from orga.activities.adapters.problem import extra_remedy
from orga.workflows.types.models.endpoints import DEFAULT_ENDPOINT, EndpointSettings, known_provider
from orga.workflows.types.models.providers import DEFAULT_PROVIDERS, PROVIDERS, Api, Provider


class ModelNotConfigured(ValueError):
    """A model cannot be used with this configuration. The text is one line with cause and remedy."""


EMBEDDED_MODEL = "offline:extractive"

_MODEL_SETTING = re.compile(
    r"ORGA_(MODELS__.+|GOALS__TIERS.*|KNOWLEDGE__EMBEDDER|AGENTS__(?!.*__).+|AGENTS__.+__(MODEL|CRITICS.*))", re.I
)
"""Variables that decide which model gets a prompt or a text. A variable that sets a whole agent is one of them."""
_OLLAMA_PORT = 11434
_ANTHROPIC_VERSION = "2026-10-21"


def default_model(env: Mapping[str, str]) -> str:
    """Return `provider:model` of the first key that is set, or the embedded reader if none is."""
    for provider in DEFAULT_PROVIDERS:
        if _env_value(env, provider.key):
            return f"{provider.name}:{_env_value(env, provider.model) or provider.default_model}"
    return EMBEDDED_MODEL


def named_models(env: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that choose models, with their values. A key's value is replaced by the model it chooses."""
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
    """Return a text for each variable whose address is not used, because a key or a model's name is missing."""
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


_EXTRA, _EXTRA_PACKAGES = "providers", ("pydantic_ai", "boto3")
"""The optional extra with the libraries of some providers, and the packages that show that it is installed."""


def provider_endpoint(
    name: str,
    env: Mapping[str, str],
    base_urls: Mapping[str, str],
    settings: EndpointSettings = DEFAULT_ENDPOINT,
) -> ProviderEndpoint:
    """Return the endpoint of a known provider, or one that the configuration defines.

    The configuration's base URL wins over the environment's. Raise ModelNotConfigured for a faulty setting or variable.
    """
    provider = known_provider(name, {name: settings})
    if provider.is_extra and not all(map(find_spec, _EXTRA_PACKAGES)):
        raise ModelNotConfigured(f"{name} needs orga[{_EXTRA}], which is not installed here: {extra_remedy(_EXTRA)}")
    if provider.is_extra and settings.extra_body and name != "bedrock":
        raise ModelNotConfigured(f"[models.endpoints.{name}] has extra_body, which {name} has no place for: remove it")
    key = _provider_key(provider, env)
    extra = {header.lower(): value for header, value in settings.extra_headers.items()}
    headers = extra | _headers_from(name, settings, env)
    headers |= {} if provider.is_extra else _key_headers(provider.api, settings, key)
    kind = provider_kind(name, settings)
    if kind == "openrouter":  # these headers name the application
        named = {"http-referer": _env_value(env, "OPENROUTER_REFERER"), "x-title": _env_value(env, "OPENROUTER_TITLE")}
        headers |= {header: value for header, value in named.items() if value.isascii() and value}
    url = _base_url(provider, env, base_urls)
    return ProviderEndpoint(name, url, headers=headers, secret=key, settings=settings, kind=kind, api=provider.api)


def provider_kind(name: str, settings: EndpointSettings = DEFAULT_ENDPOINT) -> str:
    """Return the known provider at an endpoint's address, by Ollama's port or by host, or else the endpoint's name."""
    parts = urlsplit(settings.base_url or "")
    if parts.port == _OLLAMA_PORT:
        return "ollama"
    host = parts.hostname or ""
    for provider in PROVIDERS.values():
        own_host = urlsplit(provider.default_url).hostname
        is_known = provider.has_list_prices and not provider.is_extra
        if is_known and (host == own_host or host.endswith(f".{own_host}")):
            return provider.name
    return name


def _headers_from(name: str, settings: EndpointSettings, env: Mapping[str, str]) -> dict[str, str]:
    headers: dict[str, str] = {}
    for header, variable in settings.headers_from.items():
        value = _env_value(env, variable)
        if not value or not value.isascii() or not value.isprintable():
            raise ModelNotConfigured(f"{name}: the header {header} needs {variable}, which is not set: set it")
        headers[header.lower()] = value
    return headers


def _provider_key(provider: Provider, env: Mapping[str, str]) -> str:
    key = _env_value(env, provider.key) or _env_value(env, provider.second_key)
    if provider.needs_key and not key:
        raise ModelNotConfigured(f"{provider.name} has no key: set {provider.key}, or choose another model")
    if not key.isascii() or not key.isprintable():
        raise ModelNotConfigured(f"{provider.key} holds characters that no key has: set it again")
    return key


def _key_headers(api: Api, settings: EndpointSettings, key: str) -> dict[str, str]:
    scheme = settings.key_scheme or ("x-api-key" if api == "messages" else "bearer")
    headers = {"authorization": f"Bearer {key}"} if scheme == "bearer" else {scheme: key}
    headers = headers if key else {}
    if api == "messages":
        headers["anthropic-version"] = _ANTHROPIC_VERSION
    return headers


def _base_url(provider: Provider, env: Mapping[str, str], base_urls: Mapping[str, str]) -> str:
    """Return the address without a slash at its end and without a fragment. A query stays."""
    stated = base_urls.get(provider.name, "").strip() or _env_value(env, provider.base_url)
    url = stated or provider.default_url
    if stated and provider.name == "ollama":
        url = _ollama_url(stated)
    if not stated and provider.regions:
        region = next(filter(None, (_env_value(env, each) for each in provider.regions)), "")
        if not re.fullmatch(r"[a-z0-9-]+", region):
            raise ModelNotConfigured(f"{provider.name} has no valid region: set {provider.regions[0]}, as in eu-west-1")
        url = url.format(region=region)
    if not url and not stated:
        raise ModelNotConfigured(f"{provider.name} has no address: set [models] base_urls or {provider.base_url}")
    if not _is_http(url):
        raise ModelNotConfigured(f"{provider.base_url} is no http(s) address: write it like https://host/v1")
    parts = urlsplit(url)
    path = parts.path.rstrip("/")
    if provider.name in {"anthropic", "ollama"} and not path.endswith("/v1"):
        path += "/v1"
    return urlunsplit(parts._replace(path=path, fragment=""))


def _ollama_url(value: str) -> str:
    """Read `OLLAMA_HOST` as Ollama does. Scheme and port may be missing, and 0.0.0.0 means this machine."""
    url = value if "://" in value else f"http://{value}"
    try:
        parts = urlsplit(url)
        port = parts.port or (None if "://" in value else _OLLAMA_PORT)
    except ValueError:
        return ""
    name = "127.0.0.1" if parts.hostname in {None, "0.0.0.0", "::"} else str(parts.hostname)
    host = f"[{name}]" if ":" in name else name
    return f"{parts.scheme}://{host}{f':{port}' if port else ''}{parts.path}"


def _is_http(url: str) -> bool:
    try:
        parts = urlsplit(url)
        return parts.scheme in {"http", "https"} and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        return False


def _env_value(env: Mapping[str, str], name: str) -> str:
    return env.get(name, "").strip() if name else ""
