"""HTTP for the adapters. Only this module imports httpx, so a change to its successor is one file.

Bodies are decompressed in small pieces, so that no sender can fill the memory.
"""

import asyncio
import ipaddress
import re
import zlib
from collections.abc import AsyncGenerator, Mapping
from urllib.parse import unquote, urlsplit

from httpx import (
    URL,
    AsyncBaseTransport,
    AsyncClient,
    AsyncHTTPTransport,
    ConnectError,
    DecodingError,
    Headers,
    HTTPError,
    InvalidURL,
    Limits,
    LocalProtocolError,
    MockTransport,
    NetworkError,
    RemoteProtocolError,
    Request,
    Response,
    Timeout,
    TimeoutException,
    TransportError,
    UnsupportedProtocol,
    create_ssl_context,
)

__all__ = [
    "REFUSAL_STATUSES",
    "TRANSIENT_STATUSES",
    "URL",
    "AsyncBaseTransport",
    "AsyncClient",
    "AsyncHTTPTransport",
    "ConnectError",
    "DecodingError",
    "HTTPError",
    "Headers",
    "InvalidURL",
    "LocalProtocolError",
    "MockTransport",
    "NetworkError",
    "RemoteProtocolError",
    "Request",
    "Response",
    "Timeout",
    "TimeoutException",
    "TransportError",
    "UnsupportedProtocol",
    "create_ssl_context",
    "has_dot_segments",
    "http_client",
    "is_dot_segment",
    "is_loopback",
    "silence_timeout",
]

CONNECT_S = 10.0
"""Seconds within which a connection has to be made."""

SILENCE_S = 120.0
"""Seconds that may pass between two bytes."""

TRANSIENT_STATUSES = frozenset({408, 425, 429, 500, 502, 503, 504})
"""Statuses after which a later attempt may succeed."""

REFUSAL_STATUSES = frozenset(
    {400, 401, 402, 403, 404, 405, 406, 407, 410, 411, 412, 413, 414, 415, 416, 417, 421, 422, 423, 425, 426, 428, 429}
    | {431, 451}
)
"""Statuses that mean that nothing was done. 408 and 409 are left out, because a server may send them while it carries
a request out. 5xx are left out, because a proxy also sends them if it loses the server halfway through a request."""


def http_client(
    server_url: str,
    *,
    headers: Mapping[str, str] | None = None,
    transport: AsyncBaseTransport | None = None,
    silence_s: float = SILENCE_S,
) -> AsyncClient:
    """Return a pooled client for one server that the operator configured.

    It uses the environment's proxy and certificates, because many reach a provider only through them. A loopback server
    is always reached directly. Addresses that a model may choose need a client with `trust_env=False`. The worker
    limits the number of concurrent requests, so the pool has no limit of its own.
    """
    return AsyncClient(
        headers=headers,
        transport=transport,
        timeout=silence_timeout(silence_s),
        limits=Limits(max_connections=None, max_keepalive_connections=20),
        trust_env=not is_loopback(server_url),
    )


def silence_timeout(seconds: float) -> Timeout:
    """Return the timeout of a request. Every byte that arrives starts it again."""
    return Timeout(seconds, connect=min(seconds, CONNECT_S))


def has_dot_segments(url: str) -> bool:
    """Return whether the path of a URL has a segment `.` or `..`, including encoded ones and `..;x`.

    Policies and patterns judge a URL as it is written, and `/public/../admin` begins with `/public/`.
    """
    path = unquote(re.split(r"[?#]", url, maxsplit=1)[0])
    return any(map(is_dot_segment, re.split(r"[/\\]", path)))


def is_dot_segment(part: str) -> bool:
    """Return whether a part of a path is `.` or `..`. Some servers ignore text after a semicolon."""
    return part.partition(";")[0] in (".", "..")


def is_loopback(url: str) -> bool:
    """Return whether `url` names this machine, by name or by literal address. Names are not resolved."""
    try:
        host = urlsplit(url).hostname or ""
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


ACCEPTED_ENCODINGS = "gzip"
_CHUNK_BYTES = 65_536
_GZIP_MAGIC = b"\x1f\x8b"
"""The first bytes of each member of a gzip body."""


class UnsupportedEncoding(DecodingError):
    """The body has an encoding that the request did not accept."""


async def decompressed_chunks(response: Response) -> AsyncGenerator[bytes]:
    """Yield the body. Decompressed pieces have at most `_CHUNK_BYTES`. Other tasks can run between two pieces.

    httpx would decompress a whole chunk at once, which a sender can make a thousand times larger.

    Raises:
        DecodingError: The body is damaged or incomplete, or has an encoding other than gzip and deflate.
    """
    if response.is_stream_consumed:  # the body is in memory already
        yield response.content
        return
    encoding = response.headers.get("content-encoding", "identity").strip().lower()
    if encoding not in ("identity", "", "gzip", "x-gzip", "deflate"):
        raise UnsupportedEncoding(f"content encoding {encoding[:40]!r} is not supported")
    decompressor = _decompressor() if encoding not in ("identity", "") else None
    has_data = False  # a body without any data is complete, too
    async for chunk in response.aiter_raw():
        has_data = has_data or bool(chunk)
        if decompressor is None:
            yield chunk
            await asyncio.sleep(0)
            continue
        rest = chunk
        while rest:
            if decompressor.eof:
                if not _begins_member(rest):
                    return
                decompressor = _decompressor()
            try:
                piece = decompressor.decompress(rest, _CHUNK_BYTES)
            except zlib.error as error:
                raise DecodingError("its compressed body is damaged") from error
            rest = decompressor.unused_data if decompressor.eof else decompressor.unconsumed_tail
            yield piece
            await asyncio.sleep(0)
    if decompressor is not None and has_data and not decompressor.eof:
        raise DecodingError("its compressed body is incomplete")


def _decompressor() -> "zlib._Decompress":
    return zlib.decompressobj(zlib.MAX_WBITS | 32)  # adding 32 detects gzip or zlib by the header


def _begins_member(rest: bytes) -> bool:
    """Return whether a gzip body continues with another member. Anything else after a member's end is padding.

    If `rest` has only one byte, that byte decides.
    """
    return rest[:2] == _GZIP_MAGIC[: len(rest)]
