"""Serves the console's application on a socket, until a block ends."""

import asyncio
import socket
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import NamedTuple

import uvicorn
from starlette.types import ASGIApp

from orga.client.errors import OrgaError

START_LOOK_S = 0.01
STOP_S = 0.5
"""Seconds for open requests to end. Streams never end by themselves."""


class TlsFiles(NamedTuple):
    certificate: Path
    key: Path


def bound_socket(host: str, port: int) -> socket.socket:
    """Return a listening socket. Port 0 takes any free one.

    Raises:
        OrgaError: The address cannot be used.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    found = socket.socket(family, socket.SOCK_STREAM)
    found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        found.bind((host, port))
        found.listen(256)
    except (OSError, OverflowError) as error:
        found.close()
        why = error.strerror if isinstance(error, OSError) else str(error)
        raise OrgaError(f"--port: {host}:{port} cannot be used ({why}). Choose another, or --port 0") from None
    found.setblocking(False)
    return found


@asynccontextmanager
async def served(app: ASGIApp, at: socket.socket, tls: TlsFiles | None = None) -> AsyncGenerator[None]:
    """Serve until the block ends. Then requests get `STOP_S` to end, and streams are cut."""
    config = uvicorn.Config(
        app,
        log_level="critical",
        access_log=False,
        lifespan="off",
        proxy_headers=False,
        server_header=False,
        ws="none",
        timeout_graceful_shutdown=1,
        ssl_certfile=tls and tls.certificate,
        ssl_keyfile=tls and tls.key,
    )
    server = uvicorn.Server(config)
    task = asyncio.create_task(server._serve([at]))  # pyright: ignore[reportPrivateUsage] - `serve` takes Ctrl-C
    try:
        while not server.started:
            if task.done():
                await task
                raise OrgaError("the console could not be started; see the lines above")
            await asyncio.sleep(START_LOOK_S)
        yield
    finally:
        server.should_exit = True
        with suppress(TimeoutError):
            async with asyncio.timeout(STOP_S):
                await asyncio.shield(task)
        server.force_exit = True
        with suppress(asyncio.CancelledError):
            await task
