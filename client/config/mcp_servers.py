"""The MCP servers that a configuration names."""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from orga.activities.adapters.mcp.settings import server_settings
from orga.activities.adapters.tools.catalog import RESERVED_NAMES
from orga.client.config.sections import OrgaConfig
from orga.workflows.types.names import OWN_ACTIVITIES

if TYPE_CHECKING:
    from orga.activities.adapters.mcp.servers import McpServers


def configured_servers(config: OrgaConfig, tools: Iterable[str], env: Mapping[str, str]) -> "McpServers | None":
    """Return the servers, not yet connected, or None if there are none.

    Args:
        config: The worker's configuration.
        tools: Names of the worker's other tools.
        env: The worker's environment.

    Raises:
        ValueError: A server needs something that is missing.
    """
    if not config.mcp.servers:
        return None
    from orga.activities.adapters.mcp.servers import McpServers  # this import takes a second

    settings = server_settings(config.mcp.servers, config.tools.options, env)
    return McpServers(settings, {*tools, *RESERVED_NAMES, *OWN_ACTIVITIES})
