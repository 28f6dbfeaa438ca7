"""Logins of people at MCP servers (OAuth). `orga tools login` writes each one to a private file that all workers share.

A server may accept each refresh token only once. So a worker takes the lock of the file and reads it again before it
refreshes a login.
"""

import asyncio
import logging
import os
import re
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import cast
from urllib.parse import urlsplit

import httpx2
from mcp.client.auth import OAuthClientProvider, OAuthFlowError, OAuthTokenError
from mcp.client.auth.utils import issuers_match
from mcp.shared.auth import (
    AuthorizationCodeResult,
    OAuthClientInformationFull,
    OAuthClientMetadata,
    OAuthMetadata,
    OAuthToken,
    ProtectedResourceMetadata,
)
from mcp_types import LATEST_PROTOCOL_VERSION
from pydantic import AnyUrl, BaseModel, ValidationError

from orga.activities.adapters.http import is_loopback
from orga.activities.adapters.mcp.mcp_settings import ServerSettings
from orga.activities.adapters.shared_files import OwnFile, try_lock, write_atomically
from orga.activities.adapters.tools.guarded_http import is_public, system_addresses
from orga.workflows.types.json_text import parsed_object

REQUEST_S = 30.0
"""Seconds for one request to an authorization server."""

MAX_VALID_S = 1e9
"""Seconds that a token is valid at most. Some servers send a number for "for ever" that is too large for a date."""

LOCK_PAUSE_S = 0.05

MAX_BYTES = 1_000_000
"""Bytes of a login file, and of each answer of a server during a login or refresh."""

_ACCESS_TOKEN = re.compile(r"[!-~]+")
"""An access token (RFC 6749, A.12), but without spaces, because the header cannot have them."""

_ERROR_CODE = re.compile(r"[a-z_]{1,40}")

logging.getLogger("mcp.client.auth").setLevel(logging.CRITICAL)  # its errors show answers, which may have tokens


class Login(BaseModel):
    """A person's login at one server."""

    tokens: OAuthToken
    expires_at: float | None
    """The time at which the access token expires, in seconds since 1970. None: it does not expire."""
    client: OAuthClientInformationFull
    server: OAuthMetadata | None
    resource: ProtectedResourceMetadata | None


class LoginFile(OwnFile[Login]):
    """The file of one login. Only its owner can read it."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, Login.model_validate_json, max_bytes=MAX_BYTES)

    @asynccontextmanager
    async def locked(self) -> AsyncGenerator[None]:
        """Hold the lock, so that no other process or task changes the file. Wait until it is free."""
        self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        while (descriptor := try_lock(self.path.with_suffix(".lock"))) is None:  # noqa: ASYNC110
            await asyncio.sleep(LOCK_PAUSE_S)
        try:
            yield
        finally:
            os.close(descriptor)

    async def write(self, login: Login) -> None:
        """Replace the file. The caller must hold the lock."""
        await asyncio.to_thread(write_atomically, self.path, login.model_dump_json(exclude_none=True).encode())


class EncryptedOnly(httpx2.Auth):
    """Refuses unencrypted and private addresses that a provider would use, because the MCP server chooses them.

    It also limits the time and size of the provider's requests. A bad answer raises an OAuthFlowError that does not
    quote the answer, because the answer may contain tokens.
    """

    def __init__(self, provider: OAuthClientProvider, settings: ServerSettings) -> None:
        self._provider = provider
        self._settings = settings

    async def async_auth_flow(self, request: httpx2.Request) -> AsyncGenerator[httpx2.Request, httpx2.Response]:
        flow = self._provider.async_auth_flow(request)
        response: httpx2.Response | None = None
        try:
            while True:
                outgoing = await (anext(flow) if response is None else flow.asend(response))
                if outgoing is not request:
                    await check_address(str(outgoing.url), self._settings)
                    outgoing.headers["accept-encoding"] = "identity"
                    outgoing.extensions["timeout"] = httpx2.Timeout(REQUEST_S).as_dict()
                response = yield outgoing
                if outgoing is not request or response.status_code in (401, 403):
                    await read_answer(response)
        except StopAsyncIteration:
            return
        except OAuthTokenError:
            raise OAuthFlowError(f"the authorization server gave no token: {_status_text(response)}") from None
        except (ValueError, ArithmeticError, RecursionError, httpx2.InvalidURL) as error:
            raise OAuthFlowError(f"a server sent something unusable: {type(error).__name__}") from None
        finally:
            await flow.aclose()


class _LimitedStream(httpx2.AsyncByteStream):
    def __init__(self, response: httpx2.Response) -> None:
        self._inner = cast("httpx2.AsyncByteStream", response.stream)

    async def __aiter__(self) -> AsyncIterator[bytes]:
        left = MAX_BYTES
        async for piece in self._inner:
            left -= len(piece)
            if left < 0:
                raise OAuthFlowError(f"a server's answer has more than {MAX_BYTES} bytes")
            yield piece

    async def aclose(self) -> None:
        await self._inner.aclose()


def is_compressed(response: httpx2.Response) -> bool:
    return response.headers.get("content-encoding", "identity").strip().lower() not in ("", "identity")


async def read_answer(response: httpx2.Response) -> None:
    """Read the body. Raise OAuthFlowError if it is too large or too slow, or has an unknown size."""
    try:
        if is_compressed(response):
            raise OAuthFlowError("a server's answer is compressed, which nobody asked for")
        response.stream = _LimitedStream(response)
        async with asyncio.timeout(REQUEST_S):
            await response.aread()
    except TimeoutError:
        raise OAuthFlowError(f"a server's answer took more than {REQUEST_S:g} seconds") from None
    finally:
        await response.aclose()


def _status_text(response: httpx2.Response | None) -> str:
    """Return the HTTP status, with the error code of the body if it has one (RFC 6749, 5.2)."""
    if response is None:
        return "there was no answer"
    code = parsed_object(response.content).get("error")
    is_code = isinstance(code, str) and _ERROR_CODE.fullmatch(code)
    return f"HTTP status {response.status_code}" + (f" ({code})" if is_code else "")


async def check_address(address: str, settings: ServerSettings) -> None:
    """Raise OAuthFlowError for an address without TLS or in a private network.

    Loopback without TLS, and private networks, are allowed if the server's or issuer's own address is one too. A name
    that this machine cannot resolve is not checked, because a proxy may know it.
    """
    try:
        parts = urlsplit(address)
        host, _ = parts.hostname or "", parts.port  # reads the port only because an invalid one raises ValueError
    except ValueError:
        raise OAuthFlowError(f"the server names an unusable address ({address[:200]!r})") from None
    oauth = settings.server.oauth
    configured = (settings.server.url or "", (oauth and oauth.issuer) or "")
    may_be_loopback = any(map(is_loopback, configured))
    if not address.startswith("https://") and not (may_be_loopback and is_loopback(address)):
        raise OAuthFlowError(f"the server names an address without https:// ({address[:200]!r})")
    hosts = [urlsplit(url).hostname or "" for url in configured if url]
    if host in hosts or not await _is_private(host):
        return
    if not any([await _is_private(name) for name in hosts]):
        raise OAuthFlowError(f"the server names an address in a private network ({host}). Set issuer if it is right")


async def _is_private(host: str) -> bool:
    try:
        return not all(map(is_public, await system_addresses(host, 443)))
    except (OSError, UnicodeError):
        return False


class _LoginProvider(OAuthClientProvider):
    """The SDK's provider, which is also its own token storage. So it can store all parts of a login together."""

    def __init__(
        self,
        settings: ServerSettings,
        client: OAuthClientMetadata,
        redirect: Callable[[str], Awaitable[None]] | None = None,
        callback: Callable[[], Awaitable[AuthorizationCodeResult]] | None = None,
    ) -> None:
        assert settings.server.oauth
        super().__init__(settings.server.url or "", client, self, redirect, callback)
        self.oauth = settings.server.oauth
        self.settings = settings
        self.file = LoginFile(settings.login_file)
        self.login: Login | None = None

    async def get_tokens(self) -> OAuthToken | None:
        return None

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        return None

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        """Ignore it. It is stored with the tokens."""

    async def set_tokens(self, tokens: OAuthToken) -> None:
        context, client = self.context, self.context.client_info
        assert client
        if not _ACCESS_TOKEN.fullmatch(tokens.access_token):
            raise OAuthFlowError("the authorization server gave a token that no header can have")
        self.mark_secret(tokens)
        expires_at = context.token_expiry_time
        self.login = Login(
            tokens=tokens,
            expires_at=expires_at and min(max(expires_at, 1.0), time.time() + MAX_VALID_S),
            client=self._client_without_secret() or client,
            server=context.oauth_metadata,
            resource=context.protected_resource_metadata,
        )
        await self.file.write(self.login)

    def _client_without_secret(self) -> OAuthClientInformationFull | None:
        """Return the configured client as the login file gets it, or None if a login registers one."""
        if (client_id := self.oauth.client_id) is None:
            return None
        return OAuthClientInformationFull(client_id=client_id, token_endpoint_auth_method="none")

    def configured_client(self) -> OAuthClientInformationFull | None:
        """Return the configured client, or None if a login registers one."""
        client, secret = self._client_without_secret(), self.settings.client_credential
        if client is None or not secret:
            return client
        metadata = self.context.oauth_metadata
        accepted = (metadata and metadata.token_endpoint_auth_methods_supported) or ["client_secret_basic"]
        method = "client_secret_basic" if "client_secret_basic" in accepted else "client_secret_post"
        return OAuthClientInformationFull(
            client_id=client.client_id, client_secret=secret, token_endpoint_auth_method=method
        )

    def mark_secret(self, tokens: OAuthToken) -> None:
        marked = self.settings.tokens
        marked.extend(token for token in (tokens.access_token, tokens.refresh_token) if token and token not in marked)

    def login_needed_error(self, why: str) -> OAuthFlowError:
        return OAuthFlowError(f"{why}. Run: orga tools login {self.settings.name}")


class StoredLogin(_LoginProvider):
    """Adds the token of the stored login to requests, and refreshes the login. It never begins a new one."""

    def __init__(self, settings: ServerSettings) -> None:
        super().__init__(settings, OAuthClientMetadata(redirect_uris=None))
        self.context.protocol_version = LATEST_PROTOCOL_VERSION
        self._refreshing: asyncio.Task[None] | None = None

    async def _auth_flow(self, request: httpx2.Request) -> AsyncGenerator[httpx2.Request, httpx2.Response]:
        await self._authorize(request)
        response = yield request
        if response.status_code == 401:
            await self._authorize(request, refused_token=request.headers["Authorization"].removeprefix("Bearer "))
            response = yield request
        if response.status_code == 401:
            raise self.login_needed_error("the server refuses the token of the stored login")

    async def _authorize(self, request: httpx2.Request, refused_token: str = "") -> None:
        if not self._has_valid_token(refused_token):
            if self._refreshing is None or self._refreshing.done():
                self._refreshing = asyncio.create_task(self._refresh(refused_token))
            try:  # the refresh goes on if this request is cancelled, because its refresh token is used up anyway
                await asyncio.shield(self._refreshing)
            except (OSError, httpx2.HTTPError) as error:
                why = f"{error}" or type(error).__name__
                raise OAuthFlowError(f"the login cannot be refreshed now: {why}") from None
        self._add_auth_header(request)

    def _has_valid_token(self, refused_token: str) -> bool:
        """Read the login from the file. Return whether its access token is valid and not the refused one."""
        login = self.file.read()
        if login is None:
            raise self.login_needed_error("there is no login at this server")
        if login is not self.login:
            self._adopt(login)
        return self.context.is_token_valid() and login.tokens.access_token != refused_token

    def _adopt(self, login: Login) -> None:
        context, wanted = self.context, self.oauth
        issuer = str(login.server.issuer) if login.server else ""
        fits_issuer = wanted.issuer is None or issuers_match(issuer, wanted.issuer)
        if not fits_issuer or wanted.client_id not in (None, login.client.client_id):
            raise self.login_needed_error("the login was made with another client_id or issuer")
        self.login = login
        context.current_tokens, context.token_expiry_time = login.tokens, login.expires_at
        context.oauth_metadata = login.server
        context.client_info = self.configured_client() or login.client
        context.protected_resource_metadata = login.resource
        self.mark_secret(login.tokens)

    async def _refresh(self, refused_token: str) -> None:
        async with self.file.locked():
            if self._has_valid_token(refused_token):
                return  # another worker has refreshed it
            if not self.context.can_refresh_token():
                raise self.login_needed_error("the login has ended")
            request = await self._refresh_token()
            request.headers["accept-encoding"] = "identity"
            trust_env = not is_loopback(str(request.url))
            async with (
                asyncio.timeout(REQUEST_S),  # limits the whole request, because calls of all workers wait for the lock
                httpx2.AsyncClient(timeout=REQUEST_S, trust_env=trust_env) as client,
            ):
                response = await client.send(request, stream=True)
                await read_answer(response)
            await self._store_refreshed(response)

    async def _store_refreshed(self, response: httpx2.Response) -> None:
        status = response.status_code
        if status in (400, 401) and self.login:
            self.login.tokens.refresh_token = None  # so that no worker sends it again
            self.login.expires_at = time.time()
            await self.file.write(self.login)
            raise self.login_needed_error("the login has ended")
        try:
            OAuthToken.model_validate_json(response.content if status == 200 else b"")
        except ValidationError:
            raise OAuthFlowError(f"the login cannot be refreshed now: HTTP status {status} without a token") from None
        await self._handle_refresh_response(response)


class _FixedScope(OAuthClientMetadata):
    """Client metadata whose configured scope stays. The SDK would replace it by the scope that the server asks for."""

    def __setattr__(self, name: str, value: object) -> None:
        if name != "scope":
            super().__setattr__(name, value)


class _NewLogin(_LoginProvider):
    """Lets a person log in, and stores the login."""

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        return self.configured_client()

    async def set_tokens(self, tokens: OAuthToken) -> None:
        async with self.file.locked():
            await super().set_tokens(tokens)

    def _select_authorization_server(self, advertised: list[str]) -> str:
        issuer = self.oauth.issuer
        server = next((url for url in advertised if issuer is None or issuers_match(url, issuer)), None)
        if server is None:
            raise OAuthFlowError(f"the server names another authorization server than issuer: {advertised[0]}")
        return server

    async def _perform_authorization(self) -> httpx2.Request:
        issuer, metadata = self.oauth.issuer, self.context.oauth_metadata
        if metadata:
            address = str(metadata.authorization_endpoint)
            await check_address(address, self.settings)
            if "@" in urlsplit(address).netloc:
                raise OAuthFlowError(f"the address of the login hides its host ({address[:200]!r})")
        if issuer and not (metadata and issuers_match(str(metadata.issuer), issuer)):
            raise OAuthFlowError(f"the server does not lead to the issuer {issuer}")
        # the server's metadata is known now, and it decides how the client authenticates
        self.context.client_info = self.configured_client() or self.context.client_info
        return await super()._perform_authorization()


async def log_in(
    settings: ServerSettings,
    redirect_uri: str,
    show: Callable[[str], Awaitable[None]],
    answer: Callable[[], Awaitable[AuthorizationCodeResult]],
) -> Login:
    """Let a person log in, then store and return the login. Raise OAuthFlowError or httpx2.HTTPError if it fails.

    Args:
        show: Shows the person the address of the login page.
        answer: Waits for the authorization server's redirect to `redirect_uri`.
    """
    url = settings.server.url or ""
    scope = settings.server.oauth and settings.server.oauth.scope
    metadata = _FixedScope if scope else OAuthClientMetadata
    client = metadata(redirect_uris=[AnyUrl(redirect_uri)], client_name="orga", scope=scope)
    provider = _NewLogin(settings, client, show, answer)
    headers = {**settings.headers, "accept": "application/json, text/event-stream", "accept-encoding": "identity"}
    headers["mcp-protocol-version"] = LATEST_PROTOCOL_VERSION
    ping = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
    auth = EncryptedOnly(provider, settings)
    async with (
        httpx2.AsyncClient(auth=auth, timeout=REQUEST_S, trust_env=not is_loopback(url)) as connection,
        connection.stream("POST", url, json=ping, headers=headers) as response,
    ):
        status = response.status_code
    if provider.login is None:
        raise OAuthFlowError(f"the server did not ask for a login: it answered with HTTP status {status}")
    if status == 401:
        raise OAuthFlowError("the server refuses the token of the new login")
    return provider.login
