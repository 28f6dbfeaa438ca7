"""All tools that a worker of this configuration would have, those of its MCP servers too."""

from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

from orga.activities.adapters.mcp.names import server_of
from orga.activities.adapters.tools.catalog import ToolCatalog
from orga.activities.ports import Tool, ToolContext
from orga.client.config.mcp_servers import configured_servers
from orga.client.config.sections import OrgaConfig
from orga.client.workers.knowledge import configured_store
from orga.client.workers.tools import WorkerTool, worker_tools
from orga.workflows.types.tools import ToolOutput, ToolSpec


@asynccontextmanager
async def available_tools(
    config: OrgaConfig, root: Path, env: Mapping[str, str], say: Callable[[str], None]
) -> AsyncGenerator[list[WorkerTool]]:
    """Yield the tools, ready to be called; `say` is told of servers that cannot be reached.

    Raises:
        ValueError: Something in the config cannot be had, or two tools have one name.
    """
    own = worker_tools(config, root, env, configured_store(config, env, root))
    configured = configured_servers(config, ToolCatalog(each.tool for each in own), env)
    if configured is None:
        yield own
        return
    async with configured as servers:
        found = await servers.specs([f"{name}_*" for name in config.mcp.servers])
        for name in config.mcp.servers:
            missing = servers.absent(f"{name}_*")
            if missing and missing.for_now:
                say(missing.why)
        yield own + [
            WorkerTool(_Offered(spec, tool), f"MCP server {server_of(name, config.mcp.servers)}")
            for name, spec in found.items()
            if (tool := servers.tool(name, spec.digest))
        ]


class _Offered:
    """A server's tool with the definition that it has now."""

    def __init__(self, spec: ToolSpec, tool: Tool) -> None:
        self.spec = spec
        self._tool = tool

    async def call(self, arguments: dict[str, object], context: ToolContext) -> ToolOutput:
        return await self._tool.call(arguments, context)
