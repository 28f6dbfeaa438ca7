"""Connects to an MCP server over streamable HTTP. With the SDK alone, one failed request would end all others."""

import asyncio
import math
import re
import secrets
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any, cast

import httpx2
from mcp import MCPError
from mcp.client._transport import TransportStreams
from mcp.client.auth import OAuthClientProvider, OAuthFlowError
from mcp.client.auth.extensions.client_credentials import (
    ClientCredentialsOAuthProvider,
    PrivateKeyJWTOAuthProvider,
    SignedJWTParameters,
)
from mcp.client.auth.utils import extract_field_from_www_auth, extract_scope_from_www_auth
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.auth import OAuthClientInformationFull, OAuthToken
from mcp_types import CONNECTION_CLOSED, INTERNAL_ERROR, INVALID_PARAMS, INVALID_REQUEST, METHOD_NOT_FOUND

from orga.activities.adapters.http import REFUSAL_STATUSES, is_loopback
from orga.activities.adapters.mcp.lenient_messages import (
    MAX_PARTS,
    ByteBudget,
    ByteBudgetExceeded,
    is_answer,
    parse_message,
    read_message,
)
from orga.activities.adapters.mcp.login import EncryptedOnly, StoredLogin, is_compressed
from orga.activities.adapters.mcp.mcp_settings import ServerSettings, key_algorithm
from orga.workflows.types.json_text import as_object, has_more_parts, parsed_object

MAX_BODY_BYTES = 16_000_000

CONNECT_S = 10.0
"""Seconds to open a connection."""

SILENCE_S = 600.0
"""Seconds between two pieces of an answer. Calls have their own limits."""

NOTICE_S = 5.0
"""Seconds for a server to accept a notification. No other message is sent during that time."""

STREAM_PAUSE_S = 1.0
"""Seconds between two openings of the stream for the server's own messages. A server could ask to reopen it at once."""

NOT_SENT = -32098
"""Code of the error for a request that reached no server, or whose session was over."""

_OWN_MARK = secrets.token_hex(16)
"""A random mark in each error of this module. A server cannot guess it, so it cannot forge the error for `NOT_SENT`."""

_REFUSED_MARK = f"{_OWN_MARK} refused"
"""The mark of an error for a status that means: nothing was done."""

FINAL_CODES = (INVALID_PARAMS, INVALID_REQUEST, METHOD_NOT_FOUND)
"""Codes of errors that mean: the same call would fail again."""

_SESSION_HEADER = "mcp-session-id"

_WIRE_HEADERS = frozenset({"content-encoding", "content-length", "transfer-encoding"})
"""Headers that describe the body on the wire. They would be wrong for the decoded body."""


@asynccontextmanager
async def http_streams(settings: ServerSettings, on_end: Callable[[str], None]) -> AsyncGenerator[TransportStreams]:
    """Connect without following redirects to another origin. `on_end` gets the reason if the connection must end."""
    url = settings.server.url or ""
    timeout = httpx2.Timeout(SILENCE_S, connect=CONNECT_S)
    headers = {"accept-encoding": "identity"} | dict(settings.headers)
    auth = EncryptedOnly(_oauth_provider(settings), settings) if settings.server.oauth else None
    client = _BoundedClient(on_end, auth=auth, headers=headers, timeout=timeout, trust_env=not is_loopback(url))
    async with client, streamable_http_client(url, http_client=client, max_sse_event_size=MAX_BODY_BYTES) as streams:
        yield streams


class _MemoryTokens:
    """Keeps an OAuth client's tokens for one connection, and marks them as secrets."""

    def __init__(self, settings: ServerSettings) -> None:
        self._seen = settings.tokens
        self._tokens: OAuthToken | None = None

    async def get_tokens(self) -> OAuthToken | None:
        return self._tokens

    async def set_tokens(self, tokens: OAuthToken) -> None:
        self._tokens = tokens
        self._seen.extend(filter(None, (tokens.access_token, tokens.refresh_token)))

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        return None

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        """Ignore it, because the client is configured."""


def _oauth_provider(settings: ServerSettings) -> OAuthClientProvider:
    """Return the provider that adds tokens to requests. Only the configured issuer gets the client's credential."""
    oauth, tokens = settings.server.oauth, _MemoryTokens(settings)
    assert oauth is not None
    if oauth.login:
        return StoredLogin(settings)
    url, client, credential = settings.server.url or "", oauth.client_id or "", settings.client_credential
    if oauth.secret_from:
        return ClientCredentialsOAuthProvider(url, tokens, client, credential, issuer=oauth.issuer)
    signed = SignedJWTParameters(
        issuer=client, subject=client, signing_key=credential, signing_algorithm=key_algorithm(credential)
    ).create_assertion_provider()
    return PrivateKeyJWTOAuthProvider(url, tokens, client, signed, issuer=oauth.issuer)


class _BoundedClient(httpx2.AsyncClient):
    """Answers a failed request with an error for only this request, and limits what is read."""

    def __init__(self, on_end: Callable[[str], None], **options: Any) -> None:
        super().__init__(**options)
        self.on_end = on_end
        self._stream_opened_at = -math.inf
        """The monotonic time at which the stream for the server's own messages was last opened."""
        self.unsolicited = ByteBudget()
        """The budget for unsolicited messages of all streams together."""

    async def send(self, request: httpx2.Request, **options: Any) -> httpx2.Response:
        if request.method == "GET":
            await self._pause_between_streams()
        message = _request_message(request)
        if message and "id" not in message:  # a notification: it gets no answer
            request.extensions["timeout"] = httpx2.Timeout(NOTICE_S).as_dict()
        try:
            response = await _bounded_response(request, await super().send(request, **options), self)
        except OAuthFlowError as error:
            return _error_response(request, NOT_SENT, str(error))
        except (httpx2.ConnectError, httpx2.ConnectTimeout) as error:
            return _error_response(request, NOT_SENT, f"no connection: {error}")
        except (httpx2.TransportError, httpx2.DecodingError) as error:
            return _error_response(request, CONNECTION_CLOSED, f"{type(error).__name__}: {error}")
        is_unknown = response.status_code == 404 and _SESSION_HEADER in request.headers
        if is_unknown and _error_object(response).get("code") != METHOD_NOT_FOUND:  # else only the method is unknown
            return _error_response(request, NOT_SENT, "its session is over", 404)
        return _answer_by_status(request, response) if message.get("method") == "tools/call" else response

    async def _pause_between_streams(self) -> None:
        wait_s = max(self._stream_opened_at + STREAM_PAUSE_S - time.monotonic(), 0)
        self._stream_opened_at = time.monotonic() + wait_s
        await asyncio.sleep(wait_s)


def was_not_sent(error: MCPError) -> bool:
    """Return whether a call certainly never reached the server's tools."""
    return error.code == NOT_SENT and error.data == _OWN_MARK


def was_refused(error: MCPError) -> bool:
    return error.data == _REFUSED_MARK


def _answer_by_status(request: httpx2.Request, response: httpx2.Response) -> httpx2.Response:
    """Return the answer to a call. The status of a failed one decides whether the call may have had an effect.

    The body does not decide that, because a proxy may send a 502 with JSON.
    """
    if not response.is_error:
        return response
    status, error = response.status_code, _error_object(response)
    if error.get("data") in (_OWN_MARK, _REFUSED_MARK):
        return response
    message = error.get("message")
    why = _status_text(response) + (f": {message}" if isinstance(message, str) else "")
    # a proxy's body may have any code, so the code only counts together with a status that refuses
    accepted_codes = FINAL_CODES if status in REFUSAL_STATUSES else ()
    code = next((code for code in accepted_codes if code == error.get("code")), INTERNAL_ERROR)
    return _error_response(request, code, why, status)


def _status_text(response: httpx2.Response) -> str:
    text = f"HTTP status {response.status_code}"
    if extract_field_from_www_auth(response, "error") != "insufficient_scope":
        return text
    scope = extract_scope_from_www_auth(response)
    lacking = f"the scope {scope!r}" if scope else "a scope"
    return f"{text}: the token lacks {lacking}. Give it to the client, or to a new login (oauth.scope)"


async def _bounded_response(
    request: httpx2.Request, response: httpx2.Response, client: _BoundedClient
) -> httpx2.Response:
    """Return the response with a bounded body. An event stream is not read here; its events have their own limit."""
    content_type = response.headers.get("content-type", "").lower()
    is_json = content_type.startswith("application/json")
    if response.is_redirect:
        return response
    if response.is_success and content_type.startswith("text/event-stream"):
        return await _event_stream(request, response, client)
    try:
        body = await _read_body(response)
    except _UnusableBody as unusable:
        return _error_response(request, INTERNAL_ERROR, str(unusable))
    if response.is_error and response.status_code != 404 and not is_json:
        return _error_response(request, INTERNAL_ERROR, _status_text(response), response.status_code)
    if is_json:
        with suppress(RecursionError):  # the SDK reports this as an error of the request
            _, body = await asyncio.to_thread(parse_message, body)
    headers = {name: value for name, value in response.headers.items() if name not in _WIRE_HEADERS}
    return httpx2.Response(response.status_code, headers=headers, content=body, request=request)


class _UnusableBody(Exception):
    """The body of an answer is too large, or its connection broke. The text states the reason."""


async def _read_body(response: httpx2.Response) -> bytes:
    body = bytearray()
    try:
        async for piece in response.aiter_bytes():
            body += piece
            if len(body) > MAX_BODY_BYTES:
                raise _UnusableBody(f"its answer has more than {MAX_BODY_BYTES} bytes")
    except (httpx2.TransportError, httpx2.DecodingError) as error:
        if response.is_success:
            raise
        raise _UnusableBody(f"HTTP status {response.status_code}, then {type(error).__name__}") from None
    finally:
        await response.aclose()
    if has_more_parts(body, MAX_PARTS):
        raise _UnusableBody(f"its answer has more than {MAX_PARTS:,} parts")
    return bytes(body)


_END_OF_EVENT = re.compile(rb"(?>\r\n|\n|\r)(?>\r\n|\n|\r)")


def _split_events(held: bytes, piece: bytes) -> list[bytes]:
    """Return the events that a piece completes, then the rest. Raise ByteBudgetExceeded if that is too large."""
    if len(held) > MAX_BODY_BYTES:
        raise ByteBudgetExceeded(f"it sent an event of more than {MAX_BODY_BYTES} bytes")
    data, start = held + piece, 0
    searched = max(len(held) - 3, 0)  # the end of an event has up to four bytes, so `held` has up to three of them
    events: list[bytes] = []
    while end := _END_OF_EVENT.search(data, max(start, searched)):
        events.append(data[start : end.end()])
        start = end.end()
    return [*events, data[start:]]


async def _event_stream(request: httpx2.Request, response: httpx2.Response, client: _BoundedClient) -> httpx2.Response:
    """Return the event stream, limited by a byte budget. A compressed one is refused, because its size is unknown."""
    if is_compressed(response):
        await response.aclose()
        return _error_response(request, INTERNAL_ERROR, "its events are compressed, which nobody asked for")
    budget = ByteBudget()
    if request.method == "POST":
        budget.grant()
    response.stream = _BudgetedStream(response, budget, client)
    return response


class _BudgetedStream(httpx2.AsyncByteStream):
    """The events of a response in a form that the SDK can read. It ends when its budget is used up."""

    def __init__(self, response: httpx2.Response, budget: ByteBudget, client: _BoundedClient) -> None:
        self._inner = cast("httpx2.AsyncByteStream", response.stream)
        self._budget = budget
        self._client = client

    async def __aiter__(self) -> AsyncIterator[bytes]:
        held = b""
        async for piece in self._inner:
            try:
                self._budget.spend(len(piece))
                *events, held = _split_events(held, piece)
                for event in events:
                    yield await self._checked_event(event)
            except ByteBudgetExceeded as error:
                self._client.on_end(str(error))
                raise httpx2.ReadError(str(error)) from None
            except RecursionError:
                raise httpx2.ReadError("it sent a message that is nested too deep") from None
            await asyncio.sleep(0)  # without this, a stream that always has data would never let other tasks run
        yield held

    async def _checked_event(self, event: bytes) -> bytes:
        lines = event.splitlines()
        data = b"\n".join(line[5:].removeprefix(b" ") for line in lines if line.startswith(b"data:"))
        if not data:
            return event
        message, readable = await read_message(data)
        if not is_answer(message):
            self._client.unsolicited.spend_unsolicited(len(data))
        if readable == data:
            return event
        others = [line for line in lines if line and not line.startswith(b"data:")]
        return b"\n".join([*others, b"data: " + readable, b"", b""])

    async def aclose(self) -> None:
        await self._inner.aclose()


def _error_response(request: httpx2.Request, code: int, why: str, status: int = 502) -> httpx2.Response:
    data = _REFUSED_MARK if status in REFUSAL_STATUSES and code != NOT_SENT else _OWN_MARK
    error: dict[str, Any] = {"jsonrpc": "2.0", "id": None, "error": {"code": code, "message": why, "data": data}}
    return httpx2.Response(status, json=error, request=request)


def _error_object(response: httpx2.Response) -> dict[str, Any]:
    error = as_object(parsed_object(response.content).get("error"))
    return error if "code" in error else {}


def _request_message(request: httpx2.Request) -> dict[str, Any]:
    try:
        return parsed_object(request.content)
    except httpx2.RequestNotRead:
        return {}
