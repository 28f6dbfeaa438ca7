"""Settings of the servers that models run on: of known providers, and of endpoints that the configuration names."""

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field, JsonValue

from orga.workflows.types.models.providers import PROVIDERS, Api, Provider
from orga.workflows.types.models.usage import ModelPrice
from orga.workflows.types.record import CheckedInput
from orga.workflows.types.text import known_names_hint
from orga.workflows.types.tool_calls.mcp import HeaderName, Variable

RESERVED_FIELDS = frozenset(
    {
        *("model", "models", "preset", "route", "fallbacks"),  # which model answers
        *("messages", "input", "prompt", "system", "instructions", "previous_response_id", "conversation", "store"),
        *("tools", "tool_choice", "functions", "function_call", "plugins", "mcp_servers", "web_search_options"),
        *("stream", "background", "n", "max_tokens", "max_completion_tokens", "max_output_tokens"),
    }
)
"""Fields of a request's body that only the run sets: model, messages, tools, output limit, streaming."""

RESERVED_HEADERS = frozenset(
    {"authorization", "x-api-key", "host", "connection", "content-type", "content-length", "content-encoding"}
    | {"transfer-encoding", "accept-encoding", "expect", "upgrade", "traceparent", "tracestate"}
)


def _checked_body(body: dict[str, JsonValue]) -> dict[str, JsonValue]:
    if taken := sorted(RESERVED_FIELDS & body.keys()):
        raise ValueError(f"cannot set {', '.join(taken)}, which the run itself decides; leave it out")
    return body


def _checked_headers(headers: dict[str, str]) -> dict[str, str]:
    if taken := sorted(RESERVED_HEADERS & {name.lower() for name in headers}):
        raise ValueError(f"cannot set {', '.join(taken)}, which the client sets itself; leave it out")
    return headers


HeaderText = Annotated[str, Field(pattern=r"^[\x20-\x7e]{0,2000}$")]

Lack = Literal[
    "tools",
    "tool_choice",
    "effort",
    "thinking_tokens",
    "response_format",
    "system_role",
    "stream_options",
    "images",
    "documents",
]
"""A part of requests that some models refuse."""

KeyScheme = Literal["bearer", "api-key", "x-api-key"]


def _is_http_address(url: str) -> bool:
    try:
        parts = urlsplit(url)
        _ = parts.port  # raises if it is not a port
    except ValueError:
        return False
    has_host = parts.scheme in {"http", "https"} and bool(parts.hostname)
    return has_host and not parts.fragment and url.isprintable() and " " not in url


def _checked_url(url: str) -> str:
    if not _is_http_address(url):
        raise ValueError("is no http(s) address; write it like https://host/v1, or https://host/v1?name=value")
    parts = urlsplit(url)
    if parts.username is not None or parts.password is not None:
        raise ValueError("holds a user or a password; put the key into a variable, and name that in key_from")
    return url


class EndpointSettings(CheckedInput):
    """`[models.endpoints.NAME]`: how a server is asked. NAME is a provider, or a name of your own for `NAME:model`."""

    api: Api | None = None
    """The protocol: `chat` (Chat Completions), `responses` or `messages` (Anthropic's). A name of your own needs it.
    Null takes the provider's."""
    base_url: Annotated[str, Field(max_length=2_000), AfterValidator(_checked_url)] | None = None
    """The address. The protocol's path, such as `/chat/completions`, is appended, and a query is kept. A name of your
    own needs it. Providers have theirs in `base_urls`."""
    key_from: Variable | None = None
    """The variable that holds the key. Null: no key is sent. Only for a name of your own."""
    key_scheme: KeyScheme | None = None
    """The header that holds the key: `bearer` is `Authorization: Bearer`, the others are headers of that name. Null:
    `x-api-key` for `messages`, else `bearer`."""
    context_window: int | None = Field(default=None, ge=2_000, le=10**8)
    """Tokens of input and output together. Null: those of the price list, or those that the server states."""
    price: ModelPrice | None = None
    """The price of all models there. `[models.prices]` overrides it for one model."""
    lacks: tuple[Lack, ...] = ()
    """Parts of requests that its models refuse. They are never sent. Most unlisted ones are learned from refusals."""
    silence_s: float = Field(default=600.0, ge=1, le=86_400)
    """Seconds without a byte, after which a model call is cut off and tried again. Comments and pings count."""
    extra_body: Annotated[dict[str, JsonValue], AfterValidator(_checked_body)] = {}
    """Further fields of each request, such as OpenRouter's `provider`. Fields of the client override them."""
    extra_headers: Annotated[dict[HeaderName, HeaderText], AfterValidator(_checked_headers)] = {}
    """Further headers of each request. Secrets belong in `headers_from`."""
    headers_from: Annotated[dict[HeaderName, Variable], AfterValidator(_checked_headers)] = {}
    """Further headers, each with the environment variable that holds its whole value."""

    @property
    def secret_variables(self) -> tuple[str, ...]:
        return (*self.headers_from.values(), *([self.key_from] if self.key_from else []))


DEFAULT_ENDPOINT = EndpointSettings()

_NAME = re.compile(r"[a-z][a-z0-9_-]{0,39}")
_RESERVED_NAMES = frozenset({"tier"})
"""Names that mean something else before a colon, as in `tier:heavy`."""

_OWN_KEYS = ("base_url", "key_from")
"""Keys that only endpoints with names of your own have."""

_PROTOCOL_KEYS = ("api", "key_scheme")
"""Keys for servers whose protocol we implement. Providers of the extra `providers` have a library for theirs."""


def endpoint_problem(name: str, settings: EndpointSettings) -> str:
    if (provider := PROVIDERS.get(name)) is not None and provider.is_remote:
        refused = (*_PROTOCOL_KEYS, *_OWN_KEYS) if provider.is_extra else _OWN_KEYS
        if taken := [key for key in refused if getattr(settings, key) is not None]:
            return f"{name}: {name} is a provider, so it has no {', '.join(taken)}; use base_urls, or another name"
        return ""
    if provider is not None or name in _RESERVED_NAMES or not _NAME.fullmatch(name):
        return f"{name}: cannot be the name of an endpoint; take lower-case letters, digits, - and _, as in house-1"
    missing = [key for key in ("api", "base_url") if getattr(settings, key) is None]
    if len(missing) == 2:
        hint = known_names_hint(name, [provider.name for provider in PROVIDERS.values() if provider.is_remote])
        return f"{name!r} is no provider with a server; {hint}; an endpoint of your own needs api and base_url"
    return f"{name}: an endpoint of your own needs {missing[0]}, too" if missing else ""


def known_provider(name: str, endpoints: Mapping[str, EndpointSettings]) -> Provider:
    """Return the provider of this name with its configured protocol, or an endpoint of your own as a `Provider`."""
    own = endpoints.get(name, DEFAULT_ENDPOINT)
    if name in PROVIDERS:
        return replace(PROVIDERS[name], api=own.api or PROVIDERS[name].api)
    return Provider(
        name,
        key=own.key_from or "",
        default_url=own.base_url or "",
        needs_key=own.key_from is not None,
        api=own.api or "chat",
    )


def own_endpoints(endpoints: Mapping[str, EndpointSettings]) -> tuple[str, ...]:
    """Return the names of the endpoints that belong to no provider."""
    return tuple(name for name in endpoints if name not in PROVIDERS)
