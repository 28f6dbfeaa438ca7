"""A request of a manifest as a tool."""

import asyncio
from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from functools import partial
from typing import Any

from orga.activities.adapters.decompressed import ACCEPTED_ENCODINGS
from orga.activities.adapters.http import (
    REFUSALS,
    TRANSIENT,
    URL,
    AsyncClient,
    HTTPError,
    InvalidURL,
    Response,
    TimeoutException,
)
from orga.activities.adapters.manifests.kinds import Ground
from orga.activities.adapters.manifests.manifest import Manifest
from orga.activities.adapters.manifests.network_values import url as checked_url
from orga.activities.adapters.manifests.parsers import last_words, shown
from orga.activities.adapters.manifests.request import HttpRequest, request_of
from orga.activities.adapters.manifests.secrets import Secrets
from orga.activities.adapters.manifests.values import checked
from orga.activities.adapters.tools.bounded_body import bounded_body
from orga.activities.adapters.tools.charset import decoded
from orga.activities.adapters.tools.guarded_http import PublicBackend, guarded_client
from orga.activities.adapters.tools.redirects import followed, is_same_server
from orga.activities.adapters.tools.root import Root
from orga.activities.ports import Acted, ToolContext, ToolError
from orga.workflows.types.tools import TIME_LIMIT, ToolOutput, ToolSpec

_SAFE = ("GET", "HEAD")


class HttpTool:
    """Sends the request of a manifest with the arguments of a call, to public addresses and allowed hosts only."""

    def __init__(
        self, manifest: Manifest, spec: ToolSpec, root: Root, secrets: Secrets, network: PublicBackend
    ) -> None:
        """Take what a call needs, of a manifest with a request."""
        assert manifest.http is not None
        self._manifest = manifest
        self._http = manifest.http
        self._spec = spec
        self._ground = Ground(root)
        self._secrets = secrets
        self._backend = network

    @property
    def spec(self) -> ToolSpec:
        """As the manifest says."""
        return self._spec

    async def call(self, arguments: dict[str, Any], context: ToolContext) -> ToolOutput:
        """Return the body, parsed.

        Raises:
            ToolError: Kind InvalidArguments, AddressRefused, Http404 and its kin, ConnectionFailed, TimeLimit,
                BadOutput or OutputMismatch; each says whether the request had its effect all the same.
        """
        values = await asyncio.to_thread(checked, arguments, self._manifest.arguments, self._ground)
        request = request_of(self._http, values, self._secrets)
        context.heartbeat(f"{request.method} {request.url.host}")
        try:
            return ToolOutput(content=self._secrets.known.hidden(await self._answer(request, context)))
        except ToolError as error:
            raise self._secrets.known.left_out_of(error) from None

    async def _answer(self, request: HttpRequest, context: ToolContext) -> str:
        limit_s, host, way = self._manifest.timeout_s, request.url.host, _Way()
        try:
            async with asyncio.timeout(limit_s), guarded_client(self._backend) as client:
                client.timeout = limit_s
                return await self._read(client, request, context, way)
        except ToolError as error:
            if way.asked > 1 and error.acted == "no":  # what redirected it may have done it
                error.acted = "maybe"
            raise
        except (TimeoutError, TimeoutException):
            if not way.has_begun:
                raise _not_connected(f"{host}: no connection within {limit_s:g} s", "no") from None
            why = f"{host}: no full answer within {limit_s:g} s{way.last_words}"
            raise ToolError(why, kind=TIME_LIMIT, retryable=True) from None
        except HTTPError as error:
            why = f"{host}: {str(error) or type(error).__name__}"
            raise _not_connected(why, "maybe" if way.has_begun else "no") from None

    async def _read(self, client: AsyncClient, request: HttpRequest, context: ToolContext, way: "_Way") -> str:
        """Follow redirects of what changes nothing; each new address is checked when it is connected to."""

        def sent(url: URL) -> AbstractAsyncContextManager[Response]:
            way.asked += 1
            headers = self._headers(request, url, context)
            traced = {"trace": way.note}
            return client.stream(request.method, url, headers=headers, content=request.content, extensions=traced)

        async with followed(request.url, sent, partial(self._redirected, request)) as response:
            way.last_words = f", after the status {response.status_code} {response.reason_phrase}".rstrip()
            return await self._read_text(response)

    def _redirected(self, request: HttpRequest, url: URL, location: str) -> URL:
        if request.method not in _SAFE:
            why = f"{url.host} redirects a {request.method}, which is not sent twice; tell the operator"
            raise ToolError(why, kind="Redirected", acted="maybe")
        try:
            return URL(checked_url(str(url.join(location).copy_with(fragment=None))))
        except (ValueError, InvalidURL) as error:
            why = f"{url.host} redirects to something else: it {error}"
            raise ToolError(why, kind="Redirected", acted="maybe") from None

    def _headers(self, request: HttpRequest, url: URL, context: ToolContext) -> dict[str, str]:
        headers = {"user-agent": "orga/0.1", "accept-encoding": ACCEPTED_ENCODINGS}
        if request.method not in _SAFE:
            headers["idempotency-key"] = context.idempotency_key
        own = {**request.headers, **(request.secret_headers if is_same_server(url, request.url) else {})}
        return headers | {name.lower(): value for name, value in own.items()}

    async def _read_text(self, response: Response) -> str:
        acted = _acted(response)
        try:
            body, is_cut = await bounded_body(response, self._http.max_body_bytes)
        except ToolError as error:
            if not response.is_success:  # the status says enough
                raise _failed(response, acted, f", and what it said cannot be read: {error}") from None
            error.acted = acted
            raise
        except HTTPError as error:
            if not response.is_success and not isinstance(error, TimeoutException):
                raise _failed(response, "maybe", f", and broke off: {error}") from None
            raise
        said = await asyncio.to_thread(decoded, body, response.charset_encoding)
        text = self._secrets.known.hidden(said, is_cut=is_cut)
        if not response.is_success:
            raise _failed(response, acted, last_words(text))
        output = self._manifest.output
        if is_cut and output.parser != "text":
            why = "the answer is longer than max_body_bytes, so it cannot be parsed"
            raise ToolError(why, kind="BadOutput", acted=acted)
        cut = f"\n[cut after {self._http.max_body_bytes:,} bytes]" if is_cut else ""
        return await asyncio.to_thread(shown, text, output) + cut


class _Way:
    """How far a request came, through all its redirects."""

    def __init__(self) -> None:
        self.asked = 0
        self.has_begun = False
        """Something of it was sent: until then no server can have done anything."""
        self.last_words = ""
        """The beginning of an answer."""

    async def note(self, event: str, info: Mapping[str, Any]) -> None:
        """Hear of each step that the network takes."""
        self.has_begun = self.has_begun or event.endswith(".send_request_headers.started")


def _not_connected(why: str, acted: Acted) -> ToolError:
    return ToolError(why, kind="ConnectionFailed", retryable=True, acted=acted)


def _failed(response: Response, acted: Acted, said: str) -> ToolError:
    status = response.status_code
    why = f"{response.url.host} answered {status} {response.reason_phrase}{said}"
    return ToolError(why, kind=f"Http{status}", retryable=status in TRANSIENT, acted=acted)


def _acted(response: Response) -> Acted:
    if response.is_success:
        return "yes"
    return "no" if response.status_code in REFUSALS else "maybe"
