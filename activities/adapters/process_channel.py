"""A socket between a worker and a process that it starts."""

import asyncio
import socket
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass


@dataclass(frozen=True)
class ProcessChannel:
    """The worker's end, and the other end until the process has it."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    theirs: socket.socket


@asynccontextmanager
async def process_channel() -> AsyncGenerator[ProcessChannel]:
    """Open both ends. On exit our end is aborted, without waiting for unsent data."""
    ours, theirs = socket.socketpair()
    with theirs:
        reader, writer = await asyncio.open_connection(sock=ours)
        try:
            yield ProcessChannel(reader, writer, theirs)
        finally:
            writer.transport.abort()
