"""`orga tools pin`: what an MCP server says of its tools, and the lines that pin it."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from orga.client.cli.exit_codes import UsageError
from orga.client.cli.interrupts import completed
from orga.client.cli.options import ConfigFile, Json
from orga.client.cli.output import json_result, note, result
from orga.client.cli.terminal_text import on_one_line
from orga.client.cli.tools.settings import tools_here
from orga.client.config.problems import nearest

if TYPE_CHECKING:
    from orga.client.workers.tools import WorkerTool


def pin(
    server: Annotated[str, typer.Argument(metavar="SERVER", help="As in [mcp.servers.SERVER].", show_default=False)],
    *,
    json: Json = False,
    config: ConfigFile = None,
) -> int:
    """Show the definitions of an MCP server's tools, and print the lines for orga.toml that pin them.

    A model reads these texts before it does anything: pin what you have read. Runs that are offered pinned definitions
    only begin untainted; a tool whose definition changes is not offered any more.

    Example: orga tools pin github >> orga.toml
    """
    return completed(_pin(server, config, as_json=json))


async def _pin(server: str, config: Path | None, *, as_json: bool) -> int:
    async with tools_here(config, ignores_pins=True) as here:
        known = list(here.config.mcp.servers)
        if server not in known:
            there = nearest(server, known) if known else "[mcp.servers] names none"
            raise UsageError(f"there is no MCP server {server!r}; {there}")
        tools = [each for each in here.tools if each.tool.spec.name.startswith(f"{server}_") and each.tool.spec.digest]
    if not tools:
        raise UsageError(f"the MCP server {server!r} has no tool that could be offered")
    pins = {each.tool.spec.name: each.tool.spec.digest for each in tools}
    if as_json:
        json_result({"server": server, "pinned": pins})
        return 0
    for each in tools:
        note(_shown(each))
    lines = [f'{name} = "{digest}"' for name, digest in pins.items()]
    result(f"[mcp.servers.{server}.pinned]", *lines)
    return 0


def _shown(each: "WorkerTool") -> str:
    spec = each.tool.spec
    return f"{spec.name}: {on_one_line(spec.description, 2_000)}\n  {on_one_line(str(spec.parameters), 2_000)}"
