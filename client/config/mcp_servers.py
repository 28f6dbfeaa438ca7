"""The MCP servers that a config names."""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from orga.activities.adapters.mcp.settings import server_settings
from orga.activities.adapters.tools.catalog import RESERVED_NAMES
from orga.client.config.sections import OrgaConfig
from orga.workflows.types.names import OWN_ACTIVITIES

if TYPE_CHECKING:
    from orga.activities.adapters.mcp.servers import McpServers


def configured_servers(config: OrgaConfig, tools: Iterable[str], env: Mapping[str, str]) -> "McpServers | None":
    """Return them, not yet connected; None when there are none.

    Args:
        config: Of the worker.
        tools: Names that its other tools have already.
        env: Of the worker.

    Raises:
        ValueError: Something that a server needs cannot be had.
    """
    if not config.mcp.servers:
        return None
    from orga.activities.adapters.mcp.servers import McpServers  # a second of imports, for those who need it

    settings = server_settings(config.mcp.servers, config.tools.options, env)
    return McpServers(settings, {*tools, *RESERVED_NAMES, *OWN_ACTIVITIES})
