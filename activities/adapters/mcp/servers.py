"""All MCP servers of a worker: their tools come and go while it runs, and none of them can hold it up."""

import asyncio
from collections.abc import Collection, Sequence
from types import TracebackType

from orga.activities.adapters.mcp.connection import Connection
from orga.activities.adapters.mcp.names import server_of
from orga.activities.adapters.mcp.settings import ServerSettings
from orga.activities.adapters.mcp.tool import McpTool
from orga.activities.ports import Absent, Tool, ToolError
from orga.workflows.types.tools import ToolOptions, ToolSpec

START_S = 5.0
"""How long a worker's start, or a run's, waits for servers; those that take longer come in later."""


class McpServers:
    """A source of tools. Enter it where the worker runs."""

    def __init__(self, settings: Sequence[ServerSettings], taken: Collection[str]) -> None:
        """Prepare; `taken` are the names that the worker's own tools and activities have."""
        self._connections = {each.name: Connection(each, taken) for each in settings}

    async def __aenter__(self) -> "McpServers":
        """Connect to all servers, and wait a little for them."""
        for connection in self._connections.values():
            connection.keeper.start()
        await asyncio.gather(*(each.keeper.settled(START_S) for each in self._connections.values()))
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Close them all."""
        await asyncio.gather(*(each.keeper.stop() for each in self._connections.values()))

    async def specs(self, wanted: Collection[str]) -> dict[str, ToolSpec]:
        """Return the tools of all servers, up to date for those that names or globs in `wanted` mean."""
        meant = {server_of(name, self._connections) for name in wanted}
        await asyncio.gather(*(_refresh(each) for name, each in self._connections.items() if name in meant))
        known = [each.known for each in self._connections.values() if each.known]
        return {name: offered.spec for each in known for name, offered in each.offered.items()}

    def absent(self, name: str) -> Absent | None:
        """Return why a tool is not there, or None when no server would have it."""
        server = server_of(name, self._connections)
        if server is None:
            return None
        connection = self._connections[server]
        if connection.known is None:
            return Absent(f"the MCP server {server!r} is unavailable ({connection.keeper.why})", for_now=True)
        return Absent(connection.known.left_out.get(name, f"the MCP server {server!r} has no such tool"), for_now=False)

    def tool(self, name: str, digest: str) -> Tool | None:
        """Return the tool that a run was offered with this digest, or None when no server would have it."""
        server = server_of(name, self._connections)
        return McpTool(self._connections[server], name, digest) if server else None

    def options(self, name: str) -> ToolOptions | None:
        """Return the options that calls of the tool have here."""
        server = server_of(name, self._connections)
        return self._connections[server].settings.options(name) if server else None


async def _refresh(connection: Connection) -> None:
    try:
        async with asyncio.timeout(START_S):
            await connection.keeper.settled(START_S)
            await connection.current()
    except (ToolError, TimeoutError):
        return  # what was known before is offered, or nothing: a call will say that the server is unavailable
