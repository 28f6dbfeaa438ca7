"""Messages of JSON-RPC 2.0 over pipes, one a line."""

import asyncio
import json
from typing import Any, BinaryIO, Self

from pydantic import BaseModel, ConfigDict

MAX_LINE_BYTES = 32_000_000
"""The limit of a message. It has room for the largest document as base64."""

INVALID = -32600


class _Message(BaseModel):
    """The keys that every message shares. The package checks the rest, but wrong ones of these would stop it."""

    model_config = ConfigDict(extra="allow", strict=True)

    id: int | float | str | None = None
    method: str = ""
    error: dict[str, Any] = {}


class JsonLines:
    """The wire: one JSON object a line. A line that is none is answered with an error, and the next one is read.

    While the client does not read, nothing more is read from it, so what waits for it stays bounded.
    """

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    @classmethod
    async def over(cls, given: BinaryIO, taken: BinaryIO) -> Self:
        """Return the wire over a pipe to read from and one to write to."""
        loop, reader = asyncio.get_running_loop(), asyncio.StreamReader(limit=MAX_LINE_BYTES)
        await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), given)
        transport, protocol = await loop.connect_write_pipe(asyncio.streams.FlowControlMixin, taken)
        return cls(reader, asyncio.StreamWriter(transport, protocol, None, loop))

    async def send(self, message: dict[str, Any]) -> None:
        self._writer.write(json.dumps(message, ensure_ascii=False, default=str).encode(errors="replace") + b"\n")
        await self._writer.drain()

    async def receive(self) -> dict[str, Any] | None:
        """Return the next message, or None at the end."""
        while True:
            await self._writer.drain()
            try:
                if not (line := await self._reader.readline()):
                    return None
                return _Message.model_validate_json(line).model_dump(exclude_unset=True)
            except ValueError:  # the reader has dropped this part of a line that is too long. The rest is no JSON
                problem = f"a line must be a message of JSON-RPC 2.0 with at most {MAX_LINE_BYTES:,} bytes"
                await self.send({"jsonrpc": "2.0", "id": None, "error": {"code": INVALID, "message": problem}})

    async def close(self) -> None:
        self._writer.close()
