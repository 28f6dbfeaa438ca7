"""URLs of the corpus: no connection to a non-public address is ever tried, directly or after a redirect."""

import asyncio
import socket
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, cast

import httpcore
import pytest
from pytest_httpserver import HTTPServer
from werkzeug import Response

from orga.activities.adapters.tools.fetch_url import FetchUrl
from orga.activities.adapters.tools.guarded_http import is_public
from orga.activities.ports import ToolError
from tests.support.tools.calls import result
from tests.support.values.corpora import Case, cases


class Watched(httpcore.AsyncNetworkBackend):
    """Notes every connected address and allows only the address that the test opens."""

    def __init__(self, open_to: tuple[str, int] | None = None) -> None:
        self._open_to = open_to
        self._network = cast(httpcore.AsyncNetworkBackend, httpcore.AnyIOBackend())
        self.tried: list[str] = []

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[httpcore.SOCKET_OPTION] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        """Connect to the site of the test, otherwise note the address and fail."""
        if (host, port) == self._open_to:
            return await self._network.connect_tcp(host, port, timeout, local_address, socket_options)
        self.tried.append(host)
        raise httpcore.ConnectError("not connected in this test")


def resolver(case: Case) -> Any:
    """Resolve numbers as the system does, and names as the case defines, without a name server."""
    answers: Iterator[list[str]] = iter(case.get("resolves", []))

    async def resolve(host: str, port: int) -> Sequence[str]:
        if host == "localhost":
            return ["127.0.0.1", "::1"]
        try:
            loop = asyncio.get_running_loop()
            found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST)
            return [str(address[4][0]) for address in found]
        except OSError:
            if (answer := next(answers, None)) is not None:
                return answer
            raise

    return resolve


def watched(case: Case, site: str = "", open_to: tuple[str, int] | None = None) -> tuple[FetchUrl, Watched]:
    tool, network = FetchUrl([site] if site else [], resolver(case)), Watched(open_to)
    tool._backend._network = network  # pyright: ignore[reportPrivateUsage]
    return tool, network


@pytest.mark.parametrize("case", cases("urls"))
async def test_only_public_addresses_are_connected(case: Case) -> None:
    tool, network = watched(case)
    for _ in range(2):  # the second time a name may resolve otherwise
        with pytest.raises(ToolError) as caught:
            await result(tool, url=case["url"])
        assert [address for address in network.tried if not is_public(address)] == []
        assert "root:" not in str(caught.value)
    assert bool(network.tried) == case.get("public", False)


@pytest.mark.parametrize("case", cases("urls"))
async def test_a_redirect_does_not_reach_a_private_address(httpserver: HTTPServer, case: Case) -> None:
    """The redirect comes from an allowed host, which may have a private address."""
    target = case["url"].replace("\r", "%0d").replace("\n", "%0a")  # a header has one line
    redirect = Response(status=302, headers={"location": target.encode().decode("latin-1")})
    redirect.autocorrect_location_header = False
    httpserver.expect_request("/moved").respond_with_response(redirect)
    site = f"{httpserver.host}:{httpserver.port}"
    tool, network = watched(case, site, ("127.0.0.1", httpserver.port))
    with pytest.raises(ToolError):
        await result(tool, url=f"http://{site}/moved")
    assert [address for address in network.tried if not is_public(address)] == []
    asked = [request for request, _ in httpserver.log]
    assert (asked[0].path, asked[0].host) == ("/moved", site)
    assert {request.host for request in asked} == {site}
