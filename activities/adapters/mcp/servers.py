"""All MCP servers of a worker, and their tools. Tools come and go while the worker runs. No server can delay it."""

import asyncio
from collections.abc import Collection, Sequence
from types import TracebackType
from typing import Any

from mcp_types import CallToolRequestParams

from orga.activities.adapters.mcp.connection import McpConnection
from orga.activities.adapters.mcp.content import plain_line, result_text
from orga.activities.adapters.mcp.failures import UNAVAILABLE, changed_tool_error, missing_tool_error, reported_error
from orga.activities.adapters.mcp.mcp_settings import ServerSettings
from orga.activities.adapters.mcp.names import meant_server
from orga.activities.ports import AbsentTool, Tool, ToolContext, ToolError
from orga.workflows.types.tool_calls.tools import ToolOptions, ToolOutput, ToolSpec

KEY_META = "orga/idempotency-key"
"""Key of a request's `_meta` for servers that know it: the key that all attempts of a call share."""

_MAX_NOTE_BYTES = 200


class McpTool:
    """One tool by its legal name, with the definition that a run was offered."""

    def __init__(self, connection: McpConnection, name: str, digest: str) -> None:
        self._connection = connection
        self._settings = connection.settings
        self._name = name
        self._digest = digest
        self.spec = ToolSpec(name=self._name, options=self._settings.options(self._name), digest=self._digest)
        """The definition without its server's answer."""

    async def call(self, arguments: dict[str, Any], context: ToolContext) -> ToolOutput:
        """Carry out one call, if the definition is still the same as the run was offered."""
        try:
            return ToolOutput(content=await self._call_with_retry(arguments, context))
        except ToolError as error:
            raise self._settings.secrets.redact_error(error) from None

    async def _call_with_retry(self, arguments: dict[str, Any], context: ToolContext) -> str:
        """Call the tool. Repeat it once if the session was over and the first call was never sent."""
        try:
            return await self._call_once(arguments, context)
        except ToolError as error:
            if error.kind != UNAVAILABLE:
                raise
        return await self._call_once(arguments, context)

    async def _call_once(self, arguments: dict[str, Any], context: ToolContext) -> str:
        async def note(progress: float, total: float | None, message: str | None) -> None:
            of = f"/{total:g}" if total else ""
            text = self._settings.secrets.redact(f"{message or ''} {progress:g}{of}")
            context.heartbeat(plain_line(text, _MAX_NOTE_BYTES))

        own_name = await self._current_own_name()
        request = CallToolRequestParams(name=own_name, arguments=arguments, _meta={KEY_META: context.idempotency_key})
        result = await self._connection.call(request, note)
        text = self._settings.secrets.redact(result_text(result))
        if result.is_error:
            raise reported_error(text)
        return text

    async def _current_own_name(self) -> str:
        known = await self._connection.current()
        offered = known.offered.get(self._name)
        if offered is None:
            raise missing_tool_error(
                self._name, known.left_out.get(self._name, "its server does not offer it any more")
            )
        if self._digest and offered.spec.digest != self._digest:
            raise changed_tool_error(self._name)
        return offered.own_name


START_S = 5.0
"""Seconds that the start of a worker or a run waits for servers. Slower ones join later."""


class McpServers:
    """A source of tools. Enter it in the worker's event loop."""

    def __init__(self, settings: Sequence[ServerSettings], taken: Collection[str]) -> None:
        """Prepare the servers. `taken` are the names of the worker's own tools and activities."""
        self._connections = {each.name: McpConnection(each, taken) for each in settings}

    async def __aenter__(self) -> "McpServers":
        """Connect to all servers, and wait a short time for them."""
        for connection in self._connections.values():
            connection.keeper.start()
        await asyncio.gather(*(each.keeper.wait_until_settled(START_S) for each in self._connections.values()))
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await asyncio.gather(*(each.keeper.stop() for each in self._connections.values()))

    async def specs(self, wanted: Collection[str]) -> dict[str, ToolSpec]:
        """Return the tools of all servers. The lists of servers that `wanted` means are up to date."""
        meant = {meant_server(name, self._connections) for name in wanted}
        await asyncio.gather(*(_refresh_connection(each) for name, each in self._connections.items() if name in meant))
        known = [each.known for each in self._connections.values() if each.known]
        return {name: offered.spec for each in known for name, offered in each.offered.items()}

    def absent_tool(self, name: str) -> AbsentTool | None:
        """Return why a tool is absent, or None if no server would have it."""
        server = meant_server(name, self._connections)
        if server is None:
            return None
        connection = self._connections[server]
        if connection.known is None:
            return AbsentTool(f"the MCP server {server!r} is unavailable ({connection.keeper.why})", for_now=True)
        return AbsentTool(
            connection.known.left_out.get(name, f"the MCP server {server!r} has no such tool"), for_now=False
        )

    def tool(self, name: str, digest: str) -> Tool | None:
        """Return the tool that a run was offered with this digest, or None if no server would have it."""
        server = meant_server(name, self._connections)
        return McpTool(self._connections[server], name, digest) if server else None

    def options(self, name: str) -> ToolOptions | None:
        """Return the options of the tool's calls on this worker."""
        server = meant_server(name, self._connections)
        return self._connections[server].settings.options(name) if server else None


async def _refresh_connection(connection: McpConnection) -> None:
    try:
        async with asyncio.timeout(START_S):
            await connection.keeper.wait_until_settled(START_S)
            await connection.current()
    except (ToolError, TimeoutError):
        return  # the known tools are offered, if any. A call will report that the server is unavailable.
