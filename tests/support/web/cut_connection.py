"""A connection to a server that can be cut and restored, as by a network, a proxy or a restarting server."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from tests.support.parts.free_port import free_port


class Way:
    """Forwards connections to an address."""

    def __init__(self, target: str) -> None:
        host, port = target.rsplit(":", 1)
        self._target = (host, int(port))
        self._port = free_port()
        self._open: list[asyncio.StreamWriter] = []

    @property
    def address(self) -> str:
        """The address that clients connect to."""
        return f"127.0.0.1:{self._port}"

    async def open(self) -> None:
        """Let connections through."""
        self._server = await asyncio.start_server(self._pass_on, "127.0.0.1", self._port)

    def cut(self) -> None:
        """End all connections, and accept no others."""
        self._server.close()
        for each in self._open:
            each.transport.abort()
        self._open.clear()

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection(*self._target)
        self._open += [writer, back]
        await asyncio.gather(_copy(reader, back), _copy(there, writer), return_exceptions=True)


async def _copy(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
    while data := await source.read(65_536):
        target.write(data)
        await target.drain()


@asynccontextmanager
async def a_way(target: str) -> AsyncGenerator[Way]:
    """Yield an open way, and cut it at the end."""
    way = Way(target)
    await way.open()
    try:
        yield way
    finally:
        way.cut()
