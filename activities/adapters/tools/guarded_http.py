"""An HTTP client for tools. It connects only to public addresses, and to hosts that the configuration allows."""

import socket
import ssl
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Iterable, Sequence
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager
from functools import cache
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address
from typing import cast

import httpcore

from orga.activities.adapters.http import (
    URL,
    AsyncClient,
    AsyncHTTPTransport,
    DecodingError,
    Response,
    Timeout,
    UnsupportedEncoding,
    create_ssl_context,
    decompressed_chunks,
)
from orga.activities.adapters.threads import Threads
from orga.activities.ports import ToolError

_GLOBAL_UNICAST = IPv6Network("2000::/3")
_NAT64 = IPv6Network("64:ff9b::/96")
_NOT_PUBLIC_V4 = (
    IPv4Network("192.0.0.0/24"),  # protocol assignments; this Python counts parts of it as global
    IPv4Network("192.88.99.0/24"),  # 6to4 relays
    IPv4Network("168.63.129.16/32"),  # Azure's host services, on a public address
)
_NOT_PUBLIC_V6 = (
    IPv6Network("2001::/23"),  # Teredo and other assignments
    IPv6Network("2001:db8::/32"),
    IPv6Network("2002::/16"),  # 6to4
    IPv6Network("3fff::/20"),
)
_ISATAP = (0x5EFE, 0x0200_5EFE)  # the middle of an interface id that embeds an IPv4 address of the same site


def is_public(address: str) -> bool:
    """Return whether a literal address is public. Private, shared, link-local, metadata and tunnelled ones are not."""
    try:
        parsed = ip_address(address)
    except ValueError:
        return False
    if isinstance(parsed, IPv6Address):
        embedded = IPv4Address(int(parsed) & 0xFFFF_FFFF) if parsed in _NAT64 else parsed.ipv4_mapped
        parsed = embedded or parsed
    if isinstance(parsed, IPv4Address):
        is_special = parsed.is_multicast or parsed.is_reserved or any(parsed in network for network in _NOT_PUBLIC_V4)
        return parsed.is_global and not is_special
    is_tunnel = int(parsed) >> 32 & 0xFFFF_FFFF in _ISATAP
    is_special = is_tunnel or any(parsed in network for network in _NOT_PUBLIC_V6)
    return parsed in _GLOBAL_UNICAST and parsed.is_global and not is_special


Resolve = Callable[[str, int], Awaitable[Sequence[str]]]
"""Takes a host and a port, and returns literal IP addresses. Raises OSError if there are none."""

_WEB_PORTS = (80, 443)
_FIRST_USER_PORT = 1024

_RESOLVER = Threads("resolver", 64)
"""There are many threads, because they only wait: up to half a minute if a name server does not answer."""


async def system_addresses(host: str, port: int) -> Sequence[str]:
    """Resolve a host as the system does, including odd spellings such as `0x7f.1`."""
    found = await _RESOLVER.run(socket.getaddrinfo, host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(address[4][0]) for address in found))


class PublicBackend(httpcore.AsyncNetworkBackend):
    """Resolves a host, checks its addresses, and connects to a checked address.

    So redirects are checked too, and a name cannot resolve to another address after the check. A host is refused if one
    of its addresses is not public. Only the ports 80, 443 and those from 1024 are allowed, because a crafted HTTP
    request could be a valid message of the protocols on other ports.
    """

    def __init__(self, allow_hosts: Collection[str] = (), resolve: Resolve = system_addresses) -> None:
        """Allow `allow_hosts` (`name` or `name:port`, as in the URL) without a check of address and port."""
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
        raise _host_refusal(path, "a socket of this machine")

    async def _addresses(self, host: str, port: int) -> Sequence[str]:
        is_allowed = not self._allowed.isdisjoint((host.lower(), f"{host.lower()}:{port}"))
        if not is_allowed and port not in _WEB_PORTS and port < _FIRST_USER_PORT:
            raise _host_refusal(host, f"port {port} belongs to another protocol")
        try:
            addresses = await self._resolve(host, port)
        except (OSError, UnicodeError) as error:  # UnicodeError: a part of the name is empty or too long
            raise httpcore.ConnectError(f"{host} does not resolve") from error
        if not is_allowed and not all(map(is_public, addresses)):
            raise _host_refusal(host, "its address is private, local or reserved")
        return addresses


@cache
def _default_ssl_context() -> ssl.SSLContext:
    """Return the usual certificate checks. All fetches share them, because creating them is slow."""
    return create_ssl_context(trust_env=False)


def _host_refusal(host: str, why: str) -> ToolError:
    """Return the error with the host and the remedy. It does not show the host's address to the model."""
    remedy = "use a public address, or ask the operator to allow the host"
    return ToolError(f"{host}: {why}; {remedy}", kind="AddressRefused")


def guarded_client(backend: PublicBackend) -> AsyncClient:
    """Return a client for one fetch. It ignores the environment's proxies and credentials, and follows no redirects."""
    transport = AsyncHTTPTransport(verify=_default_ssl_context(), trust_env=False)
    # httpx offers no public way to set the network backend. A test fails if this stops working.
    transport._pool = httpcore.AsyncConnectionPool(ssl_context=_default_ssl_context(), network_backend=backend)
    return AsyncClient(transport=transport, trust_env=False, timeout=Timeout(10.0))


_MAX_REDIRECTS = 5
_REDIRECT_STATUSES = (301, 302, 303, 307, 308)


@asynccontextmanager
async def final_response(
    url: URL, send: Callable[[URL], AbstractAsyncContextManager[Response]], redirect_url: Callable[[URL, str], URL]
) -> AsyncGenerator[Response]:
    """Follow redirects and open the final response. Raise ToolError (TooManyRedirects).

    `send` sends the request to a URL. `redirect_url` takes a URL and the `location` of its answer. It returns the next
    URL, or raises an error to refuse the redirect.
    """
    for _ in range(_MAX_REDIRECTS + 1):
        async with send(url) as response:
            location = response.headers.get("location")
            if response.status_code not in _REDIRECT_STATUSES or location is None:
                yield response
                return
        url = redirect_url(url, location)
    raise ToolError(f"{url.host}: more than {_MAX_REDIRECTS} redirects; try another address", kind="TooManyRedirects")


def is_same_server(one: URL, other: URL) -> bool:
    """Return whether two URLs have the same scheme, host and port, so that the same secrets may be sent to both."""
    return (one.scheme, one.host, one.port) == (other.scheme, other.host, other.port)


async def bounded_body(response: Response, limit: int) -> tuple[bytes, bool]:
    """Return the first `limit` bytes of the decompressed body, and whether there were more."""
    body = bytearray()
    try:
        async with aclosing(decompressed_chunks(response)) as pieces:
            async for piece in pieces:
                body += piece
                if len(body) > limit:
                    break
    except DecodingError as error:
        kind = "UnsupportedContent" if isinstance(error, UnsupportedEncoding) else "BadBody"
        raise ToolError(f"{response.url}: {error}", kind=kind) from error
    return bytes(body[:limit]), len(body) > limit
