"""An MCP server over streamable HTTP. Each request fails for itself: in the SDK one lost request ends them all."""

import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import httpx2
from mcp.client._transport import TransportStreams
from mcp.client.streamable_http import streamable_http_client
from mcp_types import CONNECTION_CLOSED, INTERNAL_ERROR

from activities.adapters.http import is_loopback
from activities.adapters.mcp.settings import ServerSettings

MAX_BODY_BYTES = 16_000_000

CONNECT_S = 10.0
SILENCE_S = 600.0
"""Between two pieces of an answer; calls have limits of their own."""

NOTICE_S = 5.0
"""For a notification to be taken: until then nothing else is sent."""

NOT_SENT = -32098
"""Code of the error that stands for a request that found no server."""

_OF_THE_WIRE = frozenset({"content-encoding", "content-length", "transfer-encoding"})


@asynccontextmanager
async def http_streams(settings: ServerSettings) -> AsyncGenerator[TransportStreams]:
    """Connect to a server; redirects to another origin are not followed."""
    url = settings.server.url or ""
    timeout = httpx2.Timeout(SILENCE_S, connect=CONNECT_S)
    client = _Client(headers=dict(settings.headers), timeout=timeout, trust_env=not is_loopback(url))
    async with client, streamable_http_client(url, http_client=client, max_sse_event_size=MAX_BODY_BYTES) as streams:
        yield streams


class _Client(httpx2.AsyncClient):
    """Answers a request that fails with an error for it alone, and bounds what is read at once."""

    async def send(self, request: httpx2.Request, **options: Any) -> httpx2.Response:
        if _is_notice(request):
            request.extensions["timeout"] = httpx2.Timeout(NOTICE_S).as_dict()
        try:
            return await _bounded(request, await super().send(request, **options))
        except (httpx2.ConnectError, httpx2.ConnectTimeout) as error:
            return _failed(request, NOT_SENT, f"no connection: {error}")
        except (httpx2.TransportError, httpx2.DecodingError) as error:
            return _failed(request, CONNECTION_CLOSED, f"{type(error).__name__}: {error}")


async def _bounded(request: httpx2.Request, response: httpx2.Response) -> httpx2.Response:
    """Return the response with its body read, unless it is a stream of events, whose events are bounded each."""
    kind = response.headers.get("content-type", "").lower()
    if response.is_redirect or (response.is_success and kind.startswith("text/event-stream")):
        return response
    body = bytearray()
    try:
        async for piece in response.aiter_bytes():
            body += piece
            if len(body) > MAX_BODY_BYTES:
                return _failed(request, INTERNAL_ERROR, f"its answer has more than {MAX_BODY_BYTES} bytes")
    finally:
        await response.aclose()
    if response.is_error and response.status_code != 404 and not kind.startswith("application/json"):
        return _failed(request, INTERNAL_ERROR, f"HTTP status {response.status_code}", response.status_code)
    headers = {name: value for name, value in response.headers.items() if name not in _OF_THE_WIRE}
    return httpx2.Response(response.status_code, headers=headers, content=bytes(body), request=request)


def _failed(request: httpx2.Request, code: int, why: str, status: int = 502) -> httpx2.Response:
    error: dict[str, Any] = {"jsonrpc": "2.0", "id": None, "error": {"code": code, "message": why}}
    return httpx2.Response(status, json=error, request=request)


def _is_notice(request: httpx2.Request) -> bool:
    """Return whether nothing is answered to what is sent."""
    try:
        message: Any = json.loads(request.content)
    except (ValueError, httpx2.RequestNotRead):
        return False
    return isinstance(message, dict) and "id" not in message
