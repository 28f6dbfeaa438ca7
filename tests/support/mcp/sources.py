"""MCP servers for tests: their settings, a source of them, calls through it."""

import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from orga.activities.adapters.mcp.mcp_settings import ServerSettings, server_settings
from orga.activities.adapters.mcp.servers import McpServers
from orga.activities.ports import ToolContext
from orga.client.server.home import server_home
from orga.workflows.types.tool_calls.mcp import McpServer
from orga.workflows.types.tool_calls.tools import ToolOptions
from tests.support.mcp import hostile as mcp_hostile

TAKEN = frozenset({"prepare", "read_file"})
NO_OPTIONS: dict[str, ToolOptions] = {}


def settings_of(
    env: Mapping[str, str] = os.environ, options: Mapping[str, ToolOptions] = NO_OPTIONS, **servers: McpServer
) -> list[ServerSettings]:
    """Return the settings of servers by name."""
    return server_settings(servers, options, env, server_home().logins)


def source_of(env: Mapping[str, str] = os.environ, **servers: McpServer) -> McpServers:
    """Return servers by name, not yet entered."""
    return McpServers(settings_of(env, NO_OPTIONS, **servers), TAKEN)


def hostile(folder: Path, *modes: str, tools: list[Any] | None = None, **fields: Any) -> McpServer:
    """Return a server that misbehaves, by `modes` from its start or by the names of its tools."""
    set_definitions(folder, *(tools if tools is not None else ["echo"]))
    given: dict[str, Any] = {"command": sys.executable, "args": (mcp_hostile.__file__, str(folder), *modes), **fields}
    return McpServer(**given)


def set_definitions(folder: Path, *tools: Any) -> None:
    """Set the list of the server from now on: whole definitions, or names."""
    listed: list[Any] = [a_definition(each) if isinstance(each, str) else each for each in tools]
    (folder / "new.json").write_text(json.dumps(listed))
    (folder / "new.json").rename(folder / "tools.json")


def a_definition(name: str, **fields: Any) -> dict[str, Any]:
    """Return a definition as a server lists it."""
    return {"name": name, "description": f"the {name} tool", "inputSchema": {"type": "object"}, **fields}


async def call_tool_of(source: McpServers, name: str, context: ToolContext | None = None, /, **arguments: Any) -> str:
    """Call a tool like a run that was offered it now."""
    specs = await source.specs([name])
    tool = source.tool(name, specs[name].digest if name in specs else "")
    assert tool is not None
    return (await tool.call(arguments, context or ToolContext("c1", "key-1"))).content


def received_messages(folder: Path) -> list[dict[str, Any]]:
    """Return the messages that a hostile server received."""
    return [json.loads(line) for line in (folder / "log").read_text().splitlines()]
