"""Does a server answer yet?"""

import asyncio

from temporalio.client import Client

from orga.client.server.endpoint import ServerUnavailable


async def why_silent(address: str, timeout_s: float = 2.0) -> str | None:
    """Return None when a Temporal server answers at `address`, else the reason in one line."""
    try:
        async with asyncio.timeout(timeout_s):
            reason = await _try_to_connect(address)
            for _ in range(TRIES - 1):
                if reason == CLOSED:
                    reason = await _try_to_connect(address)
            return reason
    except TimeoutError:
        return f"no answer within {timeout_s:g} s"


async def _try_to_connect(address: str) -> str | None:
    try:
        await Client.connect(address)
    except (RuntimeError, ValueError) as error:
        return connect_failure(error)
    return None


async def wait_ready(address: str, timeout_s: float) -> None:
    """Return once a server answers at `address`.

    Raises:
        ServerUnavailable: None did within `timeout_s`.
    """
    loop = asyncio.get_running_loop()
    deadline = loop.time() + timeout_s
    while reason := await why_silent(address, max(1.0, min(2.0, deadline - loop.time()))):
        if loop.time() >= deadline:
            raise ServerUnavailable(
                f"no Temporal server answers at {address} ({reason})", "check the address and that it runs"
            )
        await asyncio.sleep(0.1)


def connect_failure(error: Exception) -> str:
    """Return the cause that the SDK's nested message ends in."""
    text = str(error)
    for sign, cause in _CAUSES.items():
        if sign in text:
            return cause
    return " ".join(text.split())[:200]


CLOSED = "it closes the connection without an answer"
"""So do a server that is ending, and a web server whose own answer came too late to be read."""

TRIES = 3
"""Where the connection was closed: the next one may bring the answer of whoever is there."""

_CAUSES = {
    "Connection refused": "connection refused",
    "failed to lookup address": "unknown host",
    "HTTP status code 404": "something other than a Temporal server answers",
    "FRAME_SIZE_ERROR": "something other than a Temporal server answers",
    "http2 error": "something other than a Temporal server answers",
    "hyper::Error(Canceled": CLOSED,
    "InvalidContentType": "it does not speak TLS",
    "certificate": "its certificate is not accepted",
    "Unauthenticated": "it refuses our credentials",
    "PermissionDenied": "it refuses our credentials",
}
