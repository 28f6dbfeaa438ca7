"""Resources and prompts of a real server, read by tools."""

import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from orga.activities.adapters.mcp.connection import REFUSED
from orga.activities.adapters.mcp.servers import McpServers
from orga.activities.ports import ToolError
from orga.workflows.types.tool_calls.mcp import McpServer
from tests.support.mcp.sources import a_definition, call_tool_of, hostile, source_of
from tests.support.parts.mcp_servers import node_program

READING = {"s_list_resources", "s_read_resource", "s_list_prompts", "s_get_prompt"}


@asynccontextmanager
async def everything(**fields: Any) -> AsyncGenerator[McpServers]:
    program = node_program("mcp-server-everything")
    server = McpServer(command=str(program), args=("stdio",), trust_annotations=True, **fields)
    async with source_of(os.environ, s=server) as source:
        yield source


async def test_resources_are_listed_and_read() -> None:
    async with everything(resources=True) as source:
        specs = await source.specs(["s_*"])
        listed = await call_tool_of(source, "s_list_resources")
        uri = listed.splitlines()[0].partition(" | ")[0]
        found = await call_tool_of(source, "s_read_resource", uri=uri)
        with pytest.raises(ToolError):
            await call_tool_of(source, "s_read_resource", uri="demo://nothing/of/that/name")
    assert READING & specs.keys() == {"s_list_resources", "s_read_resource"}
    assert {specs[name].effect for name in READING & specs.keys()} == {"read_only"}
    assert found.startswith(f"[{uri}, ")
    assert len(found.splitlines()) > 1


async def test_prompts_are_listed_and_filled() -> None:
    async with everything(prompts=True) as source:
        specs = await source.specs(["s_*"])
        listed = await call_tool_of(source, "s_list_prompts")
        filled = await call_tool_of(source, "s_get_prompt", name="args-prompt", arguments={"city": "Oslo"})
    assert READING & specs.keys() == {"s_list_prompts", "s_get_prompt"}
    assert "args-prompt(city, state?)" in listed
    assert (filled.startswith("user:\n"), "Oslo" in filled) == (True, True)


async def test_without_the_setting_there_are_no_such_tools() -> None:
    async with everything() as source:
        assert not READING & (await source.specs(["s_*"])).keys()


async def test_a_tool_of_the_server_with_that_name_is_called_itself(tmp_path: Path) -> None:
    server = hostile(tmp_path, tools=[a_definition("read_resource", description="My own.")], resources=True)
    async with source_of(os.environ, s=server) as source:
        specs = await source.specs(["s_*"])
        await call_tool_of(source, "s_read_resource")
    assert (specs["s_read_resource"].description, specs["s_read_resource"].effect) == ("My own.", "irreversible")


async def test_a_server_without_resources_says_so_and_its_tools_go_on(tmp_path: Path) -> None:
    async with source_of(os.environ, s=hostile(tmp_path, resources=True)) as source:
        with pytest.raises(ToolError, match="no such method") as raised:
            await call_tool_of(source, "s_list_resources")
        assert await call_tool_of(source, "s_echo")
    assert (raised.value.kind, raised.value.acted) == (REFUSED, "no")
