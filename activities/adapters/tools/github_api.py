"""GitHub's REST API: GETs of JSON, with failures told so that the model and the operator know what to do."""

import asyncio
from dataclasses import dataclass
from typing import Any

from pydantic_core import from_json

from orga.activities.adapters.decompressed import ACCEPTED_ENCODINGS
from orga.activities.adapters.http import TRANSIENT, URL, AsyncClient, HTTPError, Response, TimeoutException
from orga.activities.adapters.tools.bounded_body import bounded_body
from orga.activities.adapters.tools.guarded_http import (
    PublicBackend,
    Resolve,
    guarded_client,
    system_addresses,
)
from orga.activities.adapters.tools.redirects import followed, is_same_server
from orga.activities.ports import ToolError

DEFAULT_BASE_URL = "https://api.github.com"

_DEADLINE_S = 20.0
_MAX_BYTES = 4_000_000
_HEADERS = {
    "user-agent": "orga/0.1",
    "accept": "application/vnd.github+json",
    "accept-encoding": ACCEPTED_ENCODINGS,
    "x-github-api-version": "2022-11-28",
}


@dataclass(frozen=True)
class GitHubSettings:
    """Where GitHub is, and which repository `#42` alone means. The token comes from the environment only."""

    base_url: str = DEFAULT_BASE_URL
    repo: str | None = None
    """`owner/name`."""
    token: str | None = None

    def __repr__(self) -> str:
        return f"GitHubSettings({self.base_url!r}, {self.repo!r})"


class GitHubApi:
    """Reads what the token may see; without one, what is public."""

    def __init__(self, settings: GitHubSettings, resolve: Resolve = system_addresses) -> None:
        self._base = URL(settings.base_url.rstrip("/"))
        port = self._base.port or (443 if self._base.scheme == "https" else 80)
        # The operator named this server, so its address may be private; a redirect to another one is not followed.
        self._backend = PublicBackend([f"{self._base.host}:{port}"], resolve)
        self._headers = {**_HEADERS, **({"authorization": f"Bearer {settings.token}"} if settings.token else {})}
        self._has_token = bool(settings.token)

    async def get(self, *paths: str) -> list[Any]:
        """Return the JSON of each path, in order, read in parallel within 20 s."""
        try:
            async with asyncio.timeout(_DEADLINE_S), guarded_client(self._backend) as client:
                return await asyncio.gather(*(self._one(client, path) for path in paths))
        except (TimeoutError, TimeoutException) as error:
            why = f"GitHub at {self._base.host} gave no full answer in time; try again later"
            raise ToolError(why, kind="Timeout", retryable=True) from error
        except HTTPError as error:
            why = f"GitHub at {self._base.host}: {str(error) or type(error).__name__}"
            raise ToolError(why, kind="ConnectionFailed", retryable=True) from error

    async def _one(self, client: AsyncClient, path: str) -> Any:
        async with followed(
            URL(f"{self._base}{path}"),
            lambda url: client.stream("GET", url, headers=self._headers),
            lambda url, location: self._moved(url.join(location), path),
        ) as response:
            return await self._json(response, path)

    def _moved(self, url: URL, path: str) -> URL:
        """Return where a moved repository is now; the token goes to no other server."""
        if not is_same_server(url, self._base):
            raise ToolError(f"{path}: redirected to another server, {url.host}; not followed", kind="BadRedirect")
        return url

    async def _json(self, response: Response, path: str) -> Any:
        if not response.is_success:
            raise self._refusal(response, path)
        body, is_cut = await bounded_body(response, _MAX_BYTES)
        if is_cut:
            raise ToolError(f"{path}: the answer is larger than {_MAX_BYTES:,} bytes", kind="TooLarge")
        try:
            return from_json(body)
        except ValueError as error:
            raise ToolError(f"{path}: the answer is no JSON; is base_url GitHub's API?", kind="BadReply") from error

    def _refusal(self, response: Response, path: str) -> ToolError:
        status, headers = response.status_code, response.headers
        if status == 429 or (
            status == 403 and ("retry-after" in headers or headers.get("x-ratelimit-remaining") == "0")
        ):
            more = "" if self._has_token else "; a GITHUB_TOKEN on the worker raises it"
            return ToolError(f"{path}: GitHub's rate limit is reached{more}; try again later", kind="RateLimited")
        known = _REFUSALS.get(status)
        if known is not None:
            kind, why = known
            return ToolError(f"{path}: {status}, {why}", kind=kind)
        return ToolError(f"{path}: GitHub answered {status}", kind=f"Http{status}", retryable=status in TRANSIENT)


_REFUSALS = {
    401: ("AuthenticationFailed", "GitHub does not accept the worker's GITHUB_TOKEN; the operator has to renew it"),
    403: ("PermissionDenied", "the worker's GITHUB_TOKEN may not read this; use another source"),
    404: ("NotFound", "there is no such thing, or a private one that the worker's GITHUB_TOKEN, if any, may not see"),
    410: ("NotFound", "it was deleted"),
}
