"""The `fetch_url` tool."""

import asyncio
from collections.abc import Collection
from typing import Any

from pydantic import Field

from orga.activities.adapters.decompressed import ACCEPTED_ENCODINGS
from orga.activities.adapters.http import (
    TRANSIENT,
    URL,
    AsyncClient,
    HTTPError,
    InvalidURL,
    Response,
    TimeoutException,
    has_dot_segments,
)
from orga.activities.adapters.tools.bounded_body import bounded_body
from orga.activities.adapters.tools.fetched_text import MEDIA_TYPES, Fetched, is_readable, shown_text, title_and_text
from orga.activities.adapters.tools.guarded_http import (
    PublicBackend,
    Resolve,
    guarded_client,
    system_addresses,
)
from orga.activities.adapters.tools.parameters import Parameters
from orga.activities.adapters.tools.redirects import followed
from orga.activities.ports import ToolContext, ToolError
from orga.workflows.types.tools import ToolOutput, ToolSpec

_DEADLINE_S = 20.0
_MAX_BYTES = 2_000_000
_HEADERS = {"user-agent": "orga-fetch/0.1", "accept": MEDIA_TYPES, "accept-encoding": ACCEPTED_ENCODINGS}


class _Parameters(Parameters):
    url: str = Field(max_length=4_000, description="Absolute http or https URL.")
    offset: int = Field(default=0, ge=0, description="Characters of the text to skip, to go on with a long one.")


class FetchUrl:
    """GET of a public URL, as text."""

    def __init__(self, allow_hosts: Collection[str] = (), resolve: Resolve = system_addresses) -> None:
        """Allow `allow_hosts` (`name` or `name:port`) though their addresses are private."""
        self._backend = PublicBackend(allow_hosts, resolve)

    @property
    def spec(self) -> ToolSpec:
        """Read-only; calls are told apart by `url`."""
        return ToolSpec(
            name="fetch_url",
            description="Fetch a public web page or text file; a page is returned as its readable text.",
            parameters=_Parameters.json_schema(),
            effect="read_only",
            main_argument="url",
        )

    async def call(self, arguments: dict[str, Any], context: ToolContext) -> ToolOutput:
        """Return the text; the page has 20 s to arrive."""
        parameters = _Parameters.parse(arguments)
        return ToolOutput(content=await self._text(parameters))

    async def _text(self, parameters: _Parameters) -> str:
        fetched = await self._fetch(parameters.url)
        title, text = await title_and_text(fetched)
        return shown_text(fetched, title, text, parameters.offset)

    async def _fetch(self, url: str) -> Fetched:
        if has_dot_segments(url):
            raise ToolError(f"{url}: a path with . or .. is refused; write the one it leads to", kind="InvalidUrl")
        try:
            async with asyncio.timeout(_DEADLINE_S), guarded_client(self._backend) as client:
                return await _read(client, _usable(URL(url)))
        except (TimeoutError, TimeoutException) as error:
            why = f"{url}: no full answer in time; try again later or another page"
            raise ToolError(why, kind="Timeout", retryable=True) from error
        except HTTPError as error:
            why = f"{url}: {str(error) or type(error).__name__}; check the host or try another page"
            raise ToolError(why, kind="ConnectionFailed", retryable=True) from error
        except (InvalidURL, UnicodeError) as error:  # of a host such as `xn--a`, seen only where it is asked for
            raise ToolError(f"{url}: {error}; use an absolute http or https URL", kind="InvalidUrl") from error


async def _read(client: AsyncClient, url: URL) -> Fetched:
    async with followed(
        url,
        lambda url: client.stream("GET", url, headers=_HEADERS),
        lambda url, location: _usable(url.join(location)),
    ) as response:
        return await _body(response)


def _usable(url: URL) -> URL:
    if url.scheme not in ("http", "https") or not url.host:
        raise ToolError(f"{url}: only absolute http and https URLs can be fetched", kind="InvalidUrl")
    if url.userinfo:
        raise ToolError(f"{url.host}: credentials in a URL are refused; leave out user and password", kind="InvalidUrl")
    return url


async def _body(response: Response) -> Fetched:
    if not response.is_success:
        status = response.status_code
        why = f"{response.url} answered {status} {response.reason_phrase}; check the URL or try another page"
        raise ToolError(why, kind=f"Http{status}", retryable=status in TRANSIENT)
    media_type = response.headers.get("content-type", "").split(";")[0].strip().lower()
    if not is_readable(media_type):
        why = f"{response.url}: its type, {media_type[:80] or 'unknown'}, cannot be read as text; try another page"
        raise ToolError(why, kind="UnsupportedContent")
    body, is_cut = await bounded_body(response, _MAX_BYTES)
    return Fetched(str(response.url), media_type, response.charset_encoding, body, is_cut)
