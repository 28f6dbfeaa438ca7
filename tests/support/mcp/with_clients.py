"""An MCP server and its authorization server, on one port: `python with_clients.py PORT FOLDER`.

It takes the client `orga` with the secret or the public key in `facts.json` of the folder. `expires_in` are the seconds
of a token, `issuer` another issuer than the server's own. Each token request is a line of `token_requests`.
"""

import base64
import json
import secrets
import sys
import time
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import jwt
import uvicorn
from mcp.server.mcpserver import Context, MCPServer
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

PORT, FOLDER = (sys.argv[1], Path(sys.argv[2])) if sys.argv[2:] else ("0", Path())
OWN = f"http://127.0.0.1:{PORT}"
server = MCPServer("with-clients", log_level="ERROR")
valid_until: dict[str, float] = {}


@server.tool()
def leak(context: Context) -> str:
    """Return the token."""
    return str((context.headers or {}).get("authorization"))


def _facts() -> dict[str, Any]:
    return json.loads((FOLDER / "facts.json").read_text())


def _issuer() -> str:
    return _facts().get("issuer", OWN)


def _is_known(form: dict[str, str], authorization: str) -> bool:
    facts = _facts()
    if "key" in facts:
        try:
            claims = jwt.decode(
                form.get("client_assertion", ""), facts["key"], algorithms=[facts["algorithm"]], audience=_issuer()
            )
        except jwt.PyJWTError:
            return False
        return (claims["sub"], claims["iss"]) == ("orga", "orga")
    name, _, secret = base64.b64decode(authorization.removeprefix("Basic ")).decode().partition(":")
    return (unquote(name), unquote(secret)) == ("orga", facts["secret"])  # RFC 6749, 2.3.1


async def _token(request: Request) -> Response:
    form = {name: str(value) for name, value in (await request.form()).items()}
    with (FOLDER / "token_requests").open("a") as file:
        file.write(json.dumps(form) + "\n")
    is_known = form["grant_type"] == "client_credentials" and _is_known(form, request.headers.get("authorization", ""))
    if not is_known:
        return JSONResponse({"error": "invalid_client"}, 401)
    token, lasts_s = f"tok-{secrets.token_hex(16)}", float(_facts().get("expires_in", 3600))
    valid_until[token] = time.monotonic() + lasts_s
    return JSONResponse({"access_token": token, "token_type": "Bearer", "expires_in": int(lasts_s)})


async def _answer(request: Request) -> Response | None:
    """Answer what is not for the MCP server."""
    if request.url.path.startswith("/.well-known/oauth-protected-resource"):
        return JSONResponse({"resource": f"{OWN}/mcp", "authorization_servers": [OWN]})
    if request.url.path.startswith("/.well-known/"):
        methods = ["client_secret_basic", "private_key_jwt"]
        found = {"issuer": _issuer(), "token_endpoint": f"{OWN}/token", "authorization_endpoint": f"{OWN}/authorize"}
        return JSONResponse({**found, "token_endpoint_auth_methods_supported": methods})
    if request.url.path == "/token":
        return await _token(request)
    token = request.headers.get("authorization", "").removeprefix("Bearer ")
    if valid_until.get(token, 0) < time.monotonic():
        challenge = f'Bearer resource_metadata="{OWN}/.well-known/oauth-protected-resource/mcp"'
        return Response(status_code=401, headers={"www-authenticate": challenge})
    return None


class Guarded:
    """The MCP server behind a check of tokens."""

    def __init__(self, app: ASGIApp) -> None:
        """Stand before the app."""
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer, or let the app answer."""
        answer = await _answer(Request(scope, receive)) if scope["type"] == "http" else None
        await (answer or self.app)(scope, receive, send)


if __name__ == "__main__":
    uvicorn.run(Guarded(server.streamable_http_app()), port=int(PORT), log_level="critical")
