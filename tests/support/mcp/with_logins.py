"""An MCP server at which people log in, and its authorization server: `python with_logins.py PORT FOLDER`.

Whoever opens its address agrees at once. A refresh token is valid once. Each request for a token is a line of `issued`.
If `facts.json` of the folder has `over`, all refresh tokens are refused. `methods` are the ways in which clients send
their secret.
"""

import json
import secrets
import sys
import time
from pathlib import Path
from typing import Any

import uvicorn
from mcp.server.auth import routes
from mcp.server.auth.provider import (
    AccessToken,
    AuthorizationCode,
    AuthorizationParams,
    OAuthAuthorizationServerProvider,
    RefreshToken,
    construct_redirect_uri,
)
from mcp.server.auth.settings import AuthSettings, ClientRegistrationOptions
from mcp.server.mcpserver import Context, MCPServer
from mcp.shared.auth import OAuthClientInformationFull, OAuthToken

PORT, FOLDER = (sys.argv[1], Path(sys.argv[2])) if sys.argv[2:] else ("0", Path())
OWN = f"http://127.0.0.1:{PORT}"
KNOWN_CLIENT = "registered-before"
SECRET_METHODS = ("client_secret_basic", "client_secret_post")
"""Clients with a secret, each named by the way in which it has to send it."""

SECRET = "s3cr3t-of:the client"


def _facts() -> dict[str, Any]:
    return json.loads((FOLDER / "facts.json").read_text())


class People(OAuthAuthorizationServerProvider[AuthorizationCode, RefreshToken, AccessToken]):
    """Clients, codes and tokens in memory."""

    def __init__(self) -> None:
        """Begin with known clients."""
        known = {"client_id": KNOWN_CLIENT, "token_endpoint_auth_method": "none", "scope": "read write"}
        self.clients = {KNOWN_CLIENT: _AnyPort.model_validate(known)}
        for method in SECRET_METHODS:
            own = {"client_id": method, "token_endpoint_auth_method": method, "client_secret": SECRET}
            self.clients[method] = _AnyPort.model_validate(known | own)
        self.codes: dict[str, AuthorizationCode] = {}
        self.access: dict[str, AccessToken] = {}
        self.refresh: dict[str, RefreshToken] = {}

    async def get_client(self, client_id: str) -> OAuthClientInformationFull | None:
        return self.clients.get(client_id)

    async def register_client(self, client_info: OAuthClientInformationFull) -> None:
        self.clients[client_info.client_id] = _AnyPort.model_validate(client_info.model_dump())

    async def authorize(self, client: OAuthClientInformationFull, params: AuthorizationParams) -> str:
        code = AuthorizationCode(
            code=secrets.token_hex(20),
            scopes=params.scopes or [],
            expires_at=time.time() + 60,
            client_id=client.client_id,
            **params.model_dump(
                include={"code_challenge", "redirect_uri", "redirect_uri_provided_explicitly", "resource"}
            ),
        )
        self.codes[code.code] = code
        return construct_redirect_uri(str(params.redirect_uri), code=code.code, state=params.state)

    async def load_authorization_code(
        self, client: OAuthClientInformationFull, authorization_code: str
    ) -> AuthorizationCode | None:
        return self.codes.get(authorization_code)

    async def exchange_authorization_code(
        self, client: OAuthClientInformationFull, authorization_code: AuthorizationCode
    ) -> OAuthToken:
        del self.codes[authorization_code.code]
        return self._issue("login", client.client_id, authorization_code.scopes, authorization_code.resource)

    async def load_refresh_token(self, client: OAuthClientInformationFull, refresh_token: str) -> RefreshToken | None:
        found = None if _facts().get("over") else self.refresh.get(refresh_token)
        if found is None:
            self._note("refused", client.client_id, [])
        return found

    async def exchange_refresh_token(
        self, client: OAuthClientInformationFull, refresh_token: RefreshToken, scopes: list[str]
    ) -> OAuthToken:
        del self.refresh[refresh_token.token]
        return self._issue("refresh", client.client_id, scopes, refresh_token.resource)

    async def load_access_token(self, token: str) -> AccessToken | None:
        found = self.access.get(token)
        return found if found and found.expires_at and found.expires_at > time.time() else None

    async def revoke_token(self, token: AccessToken | RefreshToken) -> None:
        raise NotImplementedError

    def _issue(self, why: str, client_id: str, scopes: list[str], resource: str | None) -> OAuthToken:
        self._note(why, client_id, scopes)
        lasts_s = 3600
        access, refresh = f"tok-{secrets.token_hex(16)}", f"ref-{secrets.token_hex(16)}"
        until = int(time.time()) + lasts_s
        common: dict[str, Any] = {"client_id": client_id, "scopes": scopes, "resource": resource}
        self.access[access] = AccessToken(token=access, expires_at=until, **common)
        self.refresh[refresh] = RefreshToken(token=refresh, **common)
        return OAuthToken(
            access_token=access, expires_in=lasts_s, refresh_token=refresh, scope=" ".join(scopes) or None
        )

    def _note(self, why: str, client_id: str, scopes: list[str]) -> None:
        with (FOLDER / "issued").open("a") as file:
            file.write(json.dumps({"why": why, "client": client_id, "scopes": scopes}) + "\n")


class _AnyPort(OAuthClientInformationFull):
    """A native client: its redirect may use any port (RFC 8252, 7.3)."""

    def validate_redirect_uri(self, redirect_uri: Any) -> Any:
        return redirect_uri


def _show_methods(methods: list[str]) -> None:
    build = routes.build_metadata

    def metadata(*given: Any, **more: Any) -> Any:
        return build(*given, **more).model_copy(update={"token_endpoint_auth_methods_supported": methods})

    routes.build_metadata = metadata


if __name__ == "__main__":
    if "methods" in _facts():
        _show_methods(_facts()["methods"])
    registration = ClientRegistrationOptions(enabled=True, valid_scopes=["read", "write"], default_scopes=["read"])
    own: Any = {"issuer_url": OWN, "resource_server_url": f"{OWN}/mcp"}
    auth = AuthSettings(**own, client_registration_options=registration, validate_token_resource=True)
    server = MCPServer("with-logins", log_level="ERROR", auth_server_provider=People(), auth=auth)

    @server.tool()
    def leak(context: Context) -> str:
        """Return the token."""
        return str((context.headers or {}).get("authorization"))

    uvicorn.run(server.streamable_http_app(), port=int(PORT), log_level="critical")
