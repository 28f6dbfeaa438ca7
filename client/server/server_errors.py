"""Explains the errors of a Temporal server, and why a server does not answer."""

import asyncio
from contextlib import suppress

from temporalio.client import Client
from temporalio.service import RPCError, RPCStatusCode

_DISK_FULL = ("database or disk is full", "no space left on device", "disk quota exceeded")
"""Parts of the messages of SQLite and other databases about a full disk."""

_LOST_STATUSES = {
    RPCStatusCode.UNAVAILABLE,
    RPCStatusCode.RESOURCE_EXHAUSTED,
    RPCStatusCode.DEADLINE_EXCEEDED,
    RPCStatusCode.CANCELLED,
    RPCStatusCode.ABORTED,
    RPCStatusCode.INTERNAL,
    RPCStatusCode.UNKNOWN,
}


def is_lost(error: RPCError) -> bool:
    """Return whether the server cannot be reached at the moment, so that the same request may succeed later."""
    return error.status in _LOST_STATUSES


def is_unsupported(error: RPCError) -> bool:
    return error.status is RPCStatusCode.UNIMPLEMENTED


def error_reason(error: RPCError) -> str:
    """Return why the server refused the request, in one line."""
    if is_unsupported(error):  # every server's message has the request as `package.Service/Name`
        words = (word.rpartition("/")[2] for word in error.message.split() if "/" in word)
        name = next(words, error.message)
        return f"{name}, which this server does not support (neither does Temporal's test server)"
    if any(text in error.message.lower() for text in _DISK_FULL):
        return "the disk of its database is full; make room, and runs continue by themselves"
    return error.message


async def silence_reason(address: str, timeout_s: float = 2.0) -> str | None:
    """Return None if a Temporal server answers at `address`, else the reason in one line."""
    try:
        async with asyncio.timeout(timeout_s):
            try:
                await Client.connect(address)
            except (RuntimeError, ValueError) as error:
                return await explain_failure(error, address)
    except TimeoutError:
        return f"no answer within {timeout_s:g} s"
    return None


async def explain_failure(error: Exception, address: str) -> str:
    """Return why a connection failed. If it was closed, an HTTP request finds out if a web server closed it."""
    cause = connect_failure(error)
    if cause == CONNECTION_CLOSED and await _is_web_server(address):
        return _OTHER_SERVER
    return cause


def connect_failure(error: Exception) -> str:
    """Return the cause that the SDK's nested message names. The text of the library below the SDK is not shown."""
    message = str(error)
    for text, cause in _CAUSES.items():
        if text in message:
            return cause
    if any(text in message for text in _LIBRARY_ERRORS):
        return _OTHER_SERVER
    return " ".join(message.split())[:200]


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

_OTHER_SERVER = "something other than a Temporal server answers"

CONNECTION_CLOSED = "it closes the connection without an answer"
"""The symptom of a server that is stopping, and of a web server whose answer came too late to be read."""

_CAUSES = {
    "Connection refused": "connection refused",
    "failed to lookup address": "unknown host",
    "HTTP status code 404": _OTHER_SERVER,
    "FRAME_SIZE_ERROR": _OTHER_SERVER,
    "http2 error": _OTHER_SERVER,
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
