"""JSON messages over a stream of bytes: four bytes say how long the next one is."""

import asyncio
import json
import socket
import struct
from typing import Any

MAX_BYTES = 16_000_000

_LENGTH = struct.Struct("!I")


def packed(message: dict[str, Any]) -> bytes:
    """Return a message as it is sent.

    Raises:
        ValueError: It is longer than `MAX_BYTES`.
    """
    body = json.dumps(message).encode()
    if len(body) > MAX_BYTES:
        raise ValueError(f"{len(body):,} bytes are over the limit of {MAX_BYTES:,}")
    return _LENGTH.pack(len(body)) + body


async def next_message(stream: asyncio.StreamReader) -> dict[str, Any]:
    """Return the next message.

    Raises:
        EOFError: The stream has ended.
    """
    (length,) = _LENGTH.unpack(await stream.readexactly(_LENGTH.size))
    if length > MAX_BYTES:
        raise EOFError("what comes is no message")
    return json.loads(await stream.readexactly(length))


def received(channel: socket.socket) -> dict[str, Any]:
    """Wait for the one message that comes and return it."""
    with channel.makefile("rb") as stream:
        (length,) = _LENGTH.unpack(stream.read(_LENGTH.size))
        return json.loads(stream.read(length))
