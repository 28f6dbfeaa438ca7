"""An MCP server over streamable HTTP (2026-07-28), made with the SDK: `python mcp_modern.py PORT FOLDER`."""

import asyncio
import sys
from pathlib import Path

from mcp.server.mcpserver import Context, MCPServer

FOLDER = Path(sys.argv[2] if sys.argv[2:] else ".")
server = MCPServer("modern", log_level="ERROR")


@server.tool()
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@server.tool()
async def wait(context: Context) -> str:
    """Report progress, then wait for an hour."""
    await context.report_progress(1, 2, "half way")
    try:
        await asyncio.sleep(3600)
    except asyncio.CancelledError:
        (FOLDER / "cancelled").touch()
        raise
    return "done"


@server.tool()
def header(name: str, context: Context) -> str:
    """Return a header of the request."""
    return str((context.headers or {}).get(name))


@server.tool()
def big() -> str:
    """Return more than anyone wants."""
    return "x" * 20_000_000


if __name__ == "__main__":
    server.run("streamable-http", port=int(sys.argv[1]))
