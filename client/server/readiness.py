"""Checks whether a server answers, and if not, finds the reason."""

import asyncio
from contextlib import suppress

from temporalio.client import Client

from orga.client.server.endpoint import ServerUnavailable


async def silence_reason(address: str, timeout_s: float = 2.0) -> str | None:
    """Return None if a Temporal server answers at `address`, else the reason in one line."""
    try:
        async with asyncio.timeout(timeout_s):
            return await _try_to_connect(address)
    except TimeoutError:
        return f"no answer within {timeout_s:g} s"


async def _try_to_connect(address: str) -> str | None:
    try:
        await Client.connect(address)
    except (RuntimeError, ValueError) as error:
        return await explain_failure(error, address)
    return None


async def wait_until_ready(address: str, timeout_s: float) -> None:
    """Return once a server answers. Raise ServerUnavailable after `timeout_s`."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + timeout_s
    while reason := await silence_reason(address, max(1.0, min(2.0, deadline - loop.time()))):
        if loop.time() >= deadline:
            raise ServerUnavailable(
                f"no Temporal server answers at {address} ({reason})", "check the address and that it runs"
            )
        await asyncio.sleep(0.1)


async def explain_failure(error: Exception, address: str) -> str:
    """Return the cause. If the connection was closed, an HTTP request checks for a web server."""
    cause = connect_failure(error)
    return OTHER_SERVER if cause == CONNECTION_CLOSED and await _is_web_server(address) else cause


def connect_failure(error: Exception) -> str:
    """Return the cause in the SDK's nested message. A library's own message is never returned."""
    text = str(error)
    for sign, cause in _CAUSES.items():
        if sign in text:
            return cause
    return OTHER_SERVER if any(sign in text for sign in _LIBRARY_ERRORS) else " ".join(text.split())[:200]


async def _is_web_server(address: str) -> bool:
    host, _, port = address.rpartition(":")
    with suppress(OSError, ValueError, TimeoutError):
        async with asyncio.timeout(_PROBE_TIMEOUT_S):
            reader, writer = await asyncio.open_connection(host.strip("[]"), int(port))
            try:
                writer.write(f"HEAD / HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n".encode())
                return (await reader.read(5)) == b"HTTP/"
            finally:
                writer.close()
    return False


_PROBE_TIMEOUT_S = 2.0

OTHER_SERVER = "something other than a Temporal server answers"

CONNECTION_CLOSED = "it closes the connection without an answer"
"""The symptom of a server that is stopping, and of a web server whose answer came too late to be read."""

_CAUSES = {
    "Connection refused": "connection refused",
    "failed to lookup address": "unknown host",
    "HTTP status code 404": OTHER_SERVER,
    "FRAME_SIZE_ERROR": OTHER_SERVER,
    "http2 error": OTHER_SERVER,
    "hyper::Error(Canceled": CONNECTION_CLOSED,
    "BrokenPipe": CONNECTION_CLOSED,
    "Broken pipe": CONNECTION_CLOSED,
    "ConnectionReset": CONNECTION_CLOSED,
    "ConnectionAborted": CONNECTION_CLOSED,
    "NotConnected": CONNECTION_CLOSED,
    "UnexpectedEof": CONNECTION_CLOSED,
    "IncompleteMessage": CONNECTION_CLOSED,
    "ChannelClosed": CONNECTION_CLOSED,
    "InvalidContentType": "it does not speak TLS",
    "certificate": "its certificate is not accepted",
    "Unauthenticated": "it refuses our credentials",
    "PermissionDenied": "it refuses our credentials",
    "Network is unreachable": "the network does not reach it",
    "No route to host": "the network does not reach it",
}

_LIBRARY_ERRORS = ("tonic::", "hyper::", "h2::")
