"""A tool of an MCP server, called as the run was offered it."""

from typing import Any

from mcp_types import CallToolRequestParams

from orga.activities.adapters.mcp.connection import Connection
from orga.activities.adapters.mcp.content import result_text
from orga.activities.adapters.mcp.failures import UNAVAILABLE, changed, gone, reported
from orga.activities.adapters.mcp.plain_text import plain
from orga.activities.ports import ToolContext, ToolError
from orga.workflows.types.tools import ToolOutput, ToolSpec

KEY_META = "orga/idempotency-key"
"""Where a server that knows it finds the key that all attempts of a call share."""

_MAX_NOTE_BYTES = 200


class McpTool:
    """One tool by its legal name, with the definition that a run was offered."""

    def __init__(self, connection: Connection, name: str, digest: str) -> None:
        self._connection = connection
        self._settings = connection.settings
        self._name = name
        self._digest = digest

    @property
    def spec(self) -> ToolSpec:
        """What is known of it without its server."""
        return ToolSpec(name=self._name, options=self._settings.options(self._name), digest=self._digest)

    async def call(self, arguments: dict[str, Any], context: ToolContext) -> ToolOutput:
        """Carry out one call, if the definition is still the one that the run was offered."""
        try:
            return ToolOutput(content=await self._call(arguments, context))
        except ToolError as error:
            raise self._settings.secrets.left_out_of(error) from None

    async def _call(self, arguments: dict[str, Any], context: ToolContext) -> str:
        """Call, and once more where the first call met a session that was over and never left."""
        try:
            return await self._once(arguments, context)
        except ToolError as error:
            if error.kind != UNAVAILABLE:
                raise
        return await self._once(arguments, context)

    async def _once(self, arguments: dict[str, Any], context: ToolContext) -> str:
        async def note(progress: float, total: float | None, message: str | None) -> None:
            of = f"/{total:g}" if total else ""
            text = self._settings.secrets.hidden(f"{message or ''} {progress:g}{of}")
            context.heartbeat(plain(text, _MAX_NOTE_BYTES))

        own_name = await self._own_name()
        request = CallToolRequestParams(name=own_name, arguments=arguments, _meta={KEY_META: context.idempotency_key})
        result = await self._connection.call(request, note)
        text = self._settings.secrets.hidden(result_text(result))
        if result.is_error:
            raise reported(text)
        return text

    async def _own_name(self) -> str:
        known = await self._connection.current()
        offered = known.offered.get(self._name)
        if offered is None:
            raise gone(self._name, known.left_out.get(self._name, "its server does not offer it any more"))
        if self._digest and offered.spec.digest != self._digest:
            raise changed(self._name)
        return offered.own_name
