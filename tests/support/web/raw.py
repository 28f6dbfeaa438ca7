"""A web server that answers each path with prepared bytes, then closes the connection."""

import asyncio
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager


def answer(status: str, body: bytes = b"", *headers: str) -> bytes:
    """Return the bytes of an answer."""
    head = "\r\n".join((f"HTTP/1.1 {status}", f"content-length: {len(body)}", "connection: close", *headers))
    return f"{head}\r\n\r\n".encode() + body


@asynccontextmanager
async def raw_http(answers: Mapping[str, bytes]) -> AsyncGenerator[tuple[str, list[str]]]:
    """Serve `/<key>` on a free port of the loopback. Yield its URL, and the requested paths."""
    asked: list[str] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        path = head.split()[1]
        asked.append(path)
        writer.write(answers[path.strip("/")])
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", asked
