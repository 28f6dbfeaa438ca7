"""Settings of the server that a provider's models are asked at."""

from typing import Annotated

from pydantic import AfterValidator, Field, JsonValue

from orga.workflows.types.record import CheckedInput
from orga.workflows.types.tool_calls.mcp import HeaderName, Variable

RESERVED_FIELDS = frozenset(
    {
        *("model", "models", "preset", "route", "fallbacks"),  # which model answers
        *("messages", "input", "prompt", "system", "instructions", "previous_response_id", "conversation", "store"),
        *("tools", "tool_choice", "functions", "function_call", "plugins", "mcp_servers", "web_search_options"),
        *("stream", "background", "n", "max_tokens", "max_completion_tokens", "max_output_tokens"),
    }
)
"""Fields of a body that decide who answers what, what may be called, and what it may cost."""

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


class EndpointSettings(CheckedInput):
    """`[models.endpoints.PROVIDER]`: how the server of a provider is asked."""

    silence_s: float = Field(default=600.0, ge=1, le=86_400)
    """Seconds without a byte, after which a model call is cut off and tried again. Comments and pings are bytes."""
    extra_body: Annotated[dict[str, JsonValue], AfterValidator(_checked_body)] = {}
    """Further fields of each request, such as `provider` of OpenRouter. Fields that the client sends itself win."""
    extra_headers: Annotated[dict[HeaderName, HeaderText], AfterValidator(_checked_headers)] = {}
    """Further headers of each request. Secrets belong in `headers_from`."""
    headers_from: Annotated[dict[HeaderName, Variable], AfterValidator(_checked_headers)] = {}
    """Further headers, each with the environment variable that holds its whole value."""


DEFAULT_ENDPOINT = EndpointSettings()
