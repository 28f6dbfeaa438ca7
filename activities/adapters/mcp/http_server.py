"""An MCP server over streamable HTTP. Each request fails for itself: in the SDK one lost request ends them all."""

import asyncio
import json
import math
import secrets
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import httpx2
from mcp import MCPError
from mcp.client._transport import TransportStreams
from mcp.client.streamable_http import streamable_http_client
from mcp_types import CONNECTION_CLOSED, INTERNAL_ERROR, METHOD_NOT_FOUND

from activities.adapters.http import is_loopback
from activities.adapters.mcp.settings import ServerSettings

MAX_BODY_BYTES = 16_000_000

CONNECT_S = 10.0
SILENCE_S = 600.0
"""Between two pieces of an answer; calls have limits of their own."""

NOTICE_S = 5.0
"""For a notification to be taken: until then nothing else is sent."""

STREAM_PAUSE_S = 1.0
"""Between two times that the server's own stream is opened: the server says when, and may say at once, for ever."""

NOT_SENT = -32098
"""Code of the error that stands for a request that found no server, or a session that is over."""

_OURS = secrets.token_hex(16)
"""In each error that is made here: no server can send it, and so pretend that a call was not carried out."""

_SESSION = "mcp-session-id"

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

    _opened_at = -math.inf

    async def send(self, request: httpx2.Request, **options: Any) -> httpx2.Response:
        if request.method == "GET":
            await self._pause()
        if _is_notice(request):
            request.extensions["timeout"] = httpx2.Timeout(NOTICE_S).as_dict()
        try:
            response = await _bounded(request, await super().send(request, **options))
        except (httpx2.ConnectError, httpx2.ConnectTimeout) as error:
            return _failed(request, NOT_SENT, f"no connection: {error}")
        except (httpx2.TransportError, httpx2.DecodingError) as error:
            return _failed(request, CONNECTION_CLOSED, f"{type(error).__name__}: {error}")
        if response.status_code == 404 and _SESSION in request.headers and not _is_about_the_method(response):
            return _failed(request, NOT_SENT, "its session is over", 404)
        return response

    async def _pause(self) -> None:
        wait_s = max(self._opened_at + STREAM_PAUSE_S - time.monotonic(), 0)
        self._opened_at = time.monotonic() + wait_s
        await asyncio.sleep(wait_s)


def was_not_sent(error: MCPError) -> bool:
    """Return whether a call surely never reached the server's tools."""
    return error.code == NOT_SENT and error.data == _OURS


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
    error: dict[str, Any] = {"jsonrpc": "2.0", "id": None, "error": {"code": code, "message": why, "data": _OURS}}
    return httpx2.Response(status, json=error, request=request)


def _is_about_the_method(response: httpx2.Response) -> bool:
    """Return whether a 404 is that of a request whose method nobody knows, in a session that goes on."""
    try:
        body: Any = json.loads(response.content)
    except (ValueError, RecursionError):
        return False
    match body:
        case {"error": {"code": code}}:
            return code == METHOD_NOT_FOUND
        case _:
            return False


def _is_notice(request: httpx2.Request) -> bool:
    """Return whether nothing is answered to what is sent."""
    try:
        message: Any = json.loads(request.content)
    except (ValueError, httpx2.RequestNotRead):
        return False
    return isinstance(message, dict) and "id" not in message
