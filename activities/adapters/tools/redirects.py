"""Redirects, followed by hand: who asks looks at each address first, and says what goes with it."""

from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager

from orga.activities.adapters.http import URL, Response
from orga.activities.ports import ToolError

_MAX = 5
_STATUSES = (301, 302, 303, 307, 308)


@asynccontextmanager
async def followed(
    url: URL, sent: Callable[[URL], AbstractAsyncContextManager[Response]], led: Callable[[URL, str], URL]
) -> AsyncGenerator[Response]:
    """Open the response that is no redirect.

    Args:
        url: Where to begin.
        sent: Sends the request to a URL.
        led: Takes a URL and the location that it answered; returns what to ask next, or raises.

    Raises:
        ToolError: Kind TooManyRedirects.
    """
    for _ in range(_MAX + 1):
        async with sent(url) as response:
            location = response.headers.get("location")
            if response.status_code not in _STATUSES or location is None:
                yield response
                return
        url = led(url, location)
    raise ToolError(f"{url.host}: more than {_MAX} redirects; try another address", kind="TooManyRedirects")


def is_same_server(one: URL, other: URL) -> bool:
    """Return whether what one may be told, the other may be told, too."""
    return (one.scheme, one.host, one.port) == (other.scheme, other.host, other.port)
