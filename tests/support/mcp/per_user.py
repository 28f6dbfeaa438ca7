"""An MCP server over HTTP that knows its callers by bearer token: `python per_user.py PORT FOLDER`.

The folder has the valid tokens in `tokens.json`, and gets each request's connection and token in `requests`.
"""

import asyncio
import json
import sys
from pathlib import Path

import uvicorn
from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from starlette.types import ASGIApp, Receive, Scope, Send

FOLDER = Path(sys.argv[2] if sys.argv[2:] else ".")
server = MCPServer("per-user", log_level="ERROR")


def _tokens() -> list[str]:
    return json.loads((FOLDER / "tokens.json").read_text())


def _header(context: Context, name: str) -> str:
    return str((context.headers or {}).get(name))


@server.tool()
async def add_note(text: str, context: Context) -> str:
    """Return the text and the number of the caller's token."""
    await asyncio.sleep(0.01)  # so that other calls come between
    return f"{text} of {_tokens().index(_header(context, 'authorization'))}"


@server.tool()
async def leak(how: str, context: Context) -> str:
    """Show the token in a progress note, an error or the result."""
    token = _header(context, "authorization")
    if how == "progress":
        await context.report_progress(1, 2, f"half way with {token}")
        return "done"
    if how == "error":
        raise ToolError(f"no access with {token}")
    return f"you are {token}"


class KnownCallers:
    """Refuses requests without a valid token, and records all others."""

    def __init__(self, app: ASGIApp) -> None:
        """Stand before the app."""
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer 401, or let the app answer."""
        if scope["type"] != "http":
            return await self.app(scope, receive, send)
        given = {name.decode(): value.decode("latin-1") for name, value in scope["headers"]}
        token = given.get("authorization", "-")
        with (FOLDER / "requests").open("a") as file:
            file.write(json.dumps([scope["client"][1], token]) + "\n")
        if token not in _tokens():
            await send({"type": "http.response.start", "status": 401, "headers": []})
            return await send({"type": "http.response.body", "body": b""})
        return await self.app(scope, receive, send)


if __name__ == "__main__":
    uvicorn.run(KnownCallers(server.streamable_http_app()), port=int(sys.argv[1]), log_level="critical")
