"""A rate limiter in front of a real server: it rejects the first request with given headers, and passes on the rest."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from urllib.parse import urlsplit

BODY = b'{"error": {"message": "slow down", "type": "rate_limit_error"}}'


@asynccontextmanager
async def limited_once(url: str, headers: Callable[[], Mapping[str, str]]) -> AsyncGenerator[str]:
    """Yield the URL of the limiter in front of `url`. Its headers contain times, so they are made when sent."""
    first = True
    target = urlsplit(url)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal first
        head = await reader.readuntil(b"\r\n\r\n")
        if first:
            first = False
            await _turn_away(writer, headers())
            return
        upstream_reader, upstream_writer = await asyncio.open_connection(target.hostname, target.port)
        upstream_writer.write(head.replace(b"onnection: keep-alive", b"onnection: close"))
        await asyncio.gather(_pipe(reader, upstream_writer), _pipe(upstream_reader, writer))

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        host, port = server.sockets[0].getsockname()
        yield f"http://{host}:{port}"


async def _turn_away(writer: asyncio.StreamWriter, headers: Mapping[str, str]) -> None:
    lines = [f"{name}: {value}" for name, value in headers.items()]
    head = ["HTTP/1.1 429 Too Many Requests", "content-type: application/json", "connection: close", *lines]
    head.append(f"content-length: {len(BODY)}")
    writer.write("\r\n".join(head).encode() + b"\r\n\r\n" + BODY)
    await writer.drain()
    writer.close()


async def _pipe(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(65_536):
        writer.write(data)
        await writer.drain()
    writer.close()
