"""Serves the console's application on a socket, until a block ends."""

import asyncio
import errno
import socket
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import NamedTuple

import h11
import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

from orga.client.errors import OrgaError

START_LOOK_S = 0.01  # seconds between two checks whether the server has started
HEAD_S = 20.0
"""Seconds within which the head of a request has to be complete."""
BODY_S = 60.0
"""Seconds within which the body of a request has to be complete, even if its answer was sent before."""
STOP_S = 0.5
"""Seconds for open requests to end. Streams never end by themselves."""


class TlsFiles(NamedTuple):
    certificate: Path
    key: Path


_OTHER_LOOPBACK = {"127.0.0.1": "::1", "localhost": "::1", "::1": "127.0.0.1"}
LOOPBACK_NAMES = frozenset(_OTHER_LOOPBACK)
"""The hosts that a browser may try for a `.localhost` name."""

_NO_SUCH_FAMILY = {errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL}


def bound_socket(host: str, port: int) -> socket.socket:
    """Return a listening socket. Port 0 means any free port."""
    try:
        return _bound(host, port)
    except (OSError, OverflowError) as error:
        raise _unusable(host, port, error) from None


def loopback_sockets(host: str, port: int) -> Sequence[socket.socket]:
    """Return the listening sockets for a loopback host, all on the same port. Port 0 means any free port.

    A browser tries both 127.0.0.1 and ::1 for a `.localhost` name. If the console listened on only one, another
    user of the machine could listen on the other address, and would get the token.
    """
    first = bound_socket(host, port)
    other = _OTHER_LOOPBACK.get(host)
    if other is None:
        return [first]
    chosen_port = first.getsockname()[1]
    try:
        return [first, _bound(other, chosen_port)]
    except OSError as error:
        if error.errno in _NO_SUCH_FAMILY:
            return [first]
        first.close()
        if not port:  # another program has this port at the other address: take another port
            return loopback_sockets(host, port)
        raise _unusable(other, chosen_port, error) from None


def _bound(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    found = socket.socket(family, socket.SOCK_STREAM)
    try:
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        found.bind((host, port))
        found.listen(256)
    except (OSError, OverflowError):
        found.close()
        raise
    found.setblocking(False)
    return found


def _unusable(host: str, port: int, error: OSError | OverflowError) -> OrgaError:
    why = error.strerror if isinstance(error, OSError) else str(error)
    shown = f"[{host}]" if ":" in host else host
    return OrgaError(f"--port: {shown}:{port} cannot be used ({why}). Choose another, or --port 0")


class _BoundedRequests(H11Protocol):
    """Closes a connection whose request is not complete in time. uvicorn itself waits for ever."""

    _timer: asyncio.TimerHandle | None = None
    _timed_state: type[object] | None = None
    """The state of the client for which the timer was started."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        super().connection_made(transport)
        self._time_new_state()

    def handle_events(self) -> None:
        super().handle_events()
        self._time_new_state()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._stop_timer()

    def _time_new_state(self) -> None:
        """Start a timer when the client begins a head, and another when it begins the body."""
        state = self.conn.their_state
        if state is self._timed_state:
            return
        self._stop_timer()
        self._timed_state = state
        if state in {h11.IDLE, h11.SEND_BODY}:
            limit_s = HEAD_S if state is h11.IDLE else BODY_S
            self._timer = self.loop.call_later(limit_s, self.transport.close)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


@asynccontextmanager
async def served(app: ASGIApp, at: Sequence[socket.socket], tls: TlsFiles | None = None) -> AsyncGenerator[None]:
    """Serve on these sockets until the block ends. Then requests get `STOP_S` to end, and streams are cut."""
    config = uvicorn.Config(
        app,
        http=_BoundedRequests,
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
    task = asyncio.create_task(server._serve([*at]))  # pyright: ignore[reportPrivateUsage] - `serve` takes Ctrl-C
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
