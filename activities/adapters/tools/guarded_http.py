"""An HTTP client that connects to public addresses only, unless the config allows the host."""

import socket
import ssl
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from functools import cache
from typing import cast

import httpcore

from orga.activities.adapters.http import AsyncClient, AsyncHTTPTransport, Timeout, create_ssl_context
from orga.activities.adapters.tools.public_address import is_public
from orga.activities.ports import ToolError
from orga.activities.threads import Threads

Resolve = Callable[[str, int], Awaitable[Sequence[str]]]
"""Host and port to literal addresses; raises OSError when there are none."""

_WEB_PORTS = (80, 443)
_FIRST_USER_PORT = 1024

_RESOLVER = Threads("resolver", 64)
"""Of many threads, since they do nothing but wait, for half a minute where a name server never answers."""


async def system_addresses(host: str, port: int) -> Sequence[str]:
    """Resolve as the system does, odd spellings such as `0x7f.1` included."""
    found = await _RESOLVER.run(socket.getaddrinfo, host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(address[4][0]) for address in found))


class PublicBackend(httpcore.AsyncNetworkBackend):
    """Checks at the moment of connecting, and connects to what it checked.

    So it holds for redirects and for a name that resolves differently the second time. A name is refused
    when any of its addresses is not public. Ports: 80, 443 and those from 1024; the rest belongs to other
    protocols, which an HTTP request could be made to speak.
    """

    def __init__(self, allow_hosts: Collection[str] = (), resolve: Resolve = system_addresses) -> None:
        """Allow `allow_hosts` (`name` or `name:port`, as in the URL) at any address and port."""
        self._allowed = frozenset(host.lower() for host in allow_hosts)
        self._resolve = resolve
        self._network = cast(httpcore.AsyncNetworkBackend, httpcore.AnyIOBackend())

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[httpcore.SOCKET_OPTION] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        """Connect to the first checked address that answers."""
        failure: Exception = httpcore.ConnectError(f"{host} has no address")
        for address in await self._addresses(host, port):
            try:
                return await self._network.connect_tcp(address, port, timeout, local_address, socket_options)
            except (httpcore.ConnectError, httpcore.ConnectTimeout) as error:
                failure = error
        raise failure

    async def connect_unix_socket(
        self, path: str, timeout: float | None = None, socket_options: Iterable[httpcore.SOCKET_OPTION] | None = None
    ) -> httpcore.AsyncNetworkStream:
        """Refuse."""
        raise refused(path, "a socket of this machine")

    async def _addresses(self, host: str, port: int) -> Sequence[str]:
        is_allowed = not self._allowed.isdisjoint((host.lower(), f"{host.lower()}:{port}"))
        if not is_allowed and port not in _WEB_PORTS and port < _FIRST_USER_PORT:
            raise refused(host, f"port {port} belongs to another protocol")
        try:
            addresses = await self._resolve(host, port)
        except (OSError, UnicodeError) as error:  # Unicode: a label too long for a name, or empty
            raise httpcore.ConnectError(f"{host} does not resolve") from error
        if not is_allowed and not all(map(is_public, addresses)):
            raise refused(host, "its address is private, local or reserved")
        return addresses


@cache
def _usual_checks() -> ssl.SSLContext:
    """Return the usual checks of certificates; costly to make, so all fetches share one, made for the first of them."""
    return create_ssl_context(trust_env=False)


def refused(host: str, why: str) -> ToolError:
    """Return the error that names the host and the remedy; the address itself stays untold."""
    return ToolError(
        f"{host}: {why}; use a public address, or ask the operator to allow the host", kind="AddressRefused"
    )


def guarded_client(backend: PublicBackend) -> AsyncClient:
    """Return a client for one fetch: no proxy, no credentials of the environment, redirects left to the caller."""
    transport = AsyncHTTPTransport(verify=_usual_checks(), trust_env=False)
    # httpx offers no other way to the network backend; a test keeps watch over this seam.
    transport._pool = httpcore.AsyncConnectionPool(ssl_context=_usual_checks(), network_backend=backend)
    return AsyncClient(transport=transport, trust_env=False, timeout=Timeout(10.0))
