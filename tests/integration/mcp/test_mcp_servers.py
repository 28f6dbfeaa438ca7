"""Real third-party MCP servers, with both protocol revisions and both transports."""

import asyncio
import json
import subprocess
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from orga.activities.adapters.mcp.connection import REFUSED
from orga.activities.adapters.mcp.keeper import UNAVAILABLE
from orga.activities.adapters.mcp.servers import REPORTED, McpServers
from orga.activities.ports import ToolContext, ToolError
from orga.workflows.types.tool_calls.mcp import McpServer
from tests.support.hold import wait_until
from tests.support.mcp import http_servers as mcp_http
from tests.support.mcp.sources import call_tool_of, source_of
from tests.support.parts.free_port import free_port
from tests.support.parts.mcp_servers import node_program, python_program

AT_ONCE_S = 10.0
"""Seconds. Far less than the calls would take."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("repository")
    (folder / "notes.txt").write_text("remember the milk\n")
    subprocess.run(["git", "init", "--quiet", str(folder)], check=True)
    return folder


@pytest.fixture(scope="module")
async def servers(folder: Path) -> AsyncGenerator[McpServers]:
    with mcp_http.everything() as over_http, mcp_http.modern(folder) as modern:
        async with source_of(
            time=McpServer(command=python_program("mcp-server-time")),
            git=McpServer(command=python_program("mcp-server-git")),
            files=McpServer(command=node_program("mcp-server-filesystem"), args=(str(folder),)),
            everything=McpServer(command=node_program("mcp-server-everything")),
            http=McpServer(url=over_http.url),
            modern=McpServer(url=modern.url),
        ) as source:
            await source.specs(["time_*", "git_*", "files_*", "everything_*", "http_*", "modern_*"])
            yield source


async def test_all_their_tools_are_found(servers: McpServers) -> None:
    names = list(await servers.specs([]))
    assert {name.partition("_")[0] for name in names} == {"time", "git", "files", "everything", "http", "modern"}
    assert {"time_get_current_time", "git_git_status", "files_read_text_file", "modern_add"} < set(names)
    assert len([name for name in names if name.startswith("everything_")]) == 13


async def test_a_tool_of_each_server_can_be_called(servers: McpServers, folder: Path) -> None:
    time = json.loads(await call_tool_of(servers, "time_get_current_time", timezone="Europe/Berlin"))
    assert time["timezone"] == "Europe/Berlin"
    assert "notes.txt" in await call_tool_of(servers, "git_git_status", repo_path=str(folder))
    assert await call_tool_of(servers, "files_read_text_file", path=str(folder / "notes.txt")) == "remember the milk\n"
    assert await call_tool_of(servers, "everything_echo", message="hello") == "Echo: hello"
    assert await call_tool_of(servers, "http_echo", message="hello") == "Echo: hello"
    assert await call_tool_of(servers, "modern_add", a=1, b=2) == "3"


@pytest.mark.parametrize("server", ["everything", "http"])
async def test_an_image_is_returned_itself(servers: McpServers, server: str) -> None:
    name = f"{server}_get-tiny-image"
    called = servers.tool(name, (await servers.specs([name]))[name].digest)
    assert called is not None
    (picture,) = (await called.call({}, ToolContext("c1", "key-1"))).media
    assert (picture.media_type, picture.size) == ("image/png", 4_033)


async def test_structured_content_is_returned_once(servers: McpServers) -> None:
    text = await call_tool_of(servers, "everything_get-structured-content", location="Chicago")
    assert json.loads(text)["conditions"]


async def test_an_error_reported_by_a_tool_is_passed_on(servers: McpServers) -> None:
    with pytest.raises(ToolError, match="outside allowed directories") as raised:
        await call_tool_of(servers, "files_read_text_file", path="/etc/passwd")
    assert (raised.value.kind, raised.value.retryable) == (REPORTED, False)


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        pytest.param("time_get_current_time", {}, id="2026-07-28 over stdio"),
        pytest.param("everything_echo", {}, id="2025-11-25 over stdio"),
        pytest.param("http_echo", {}, id="2025-11-25 over HTTP"),
        pytest.param("modern_add", {"a": "x"}, id="2026-07-28 over HTTP"),
    ],
)
async def test_wrong_arguments_are_not_retried(servers: McpServers, name: str, arguments: dict[str, str]) -> None:
    with pytest.raises(ToolError) as raised:
        await call_tool_of(servers, name, **arguments)
    assert raised.value.kind in {REPORTED, REFUSED}
    assert not raised.value.retryable


@pytest.mark.parametrize(
    ("name", "arguments", "note"),
    [
        pytest.param("everything_trigger-long-running-operation", {"duration": 60, "steps": 300}, "1/300", id="stdio"),
        pytest.param("http_trigger-long-running-operation", {"duration": 60, "steps": 300}, "1/300", id="HTTP"),
        pytest.param("modern_wait", {}, "half way 1/2", id="2026-07-28 over HTTP"),
    ],
)
async def test_progress_is_passed_on_and_a_cancelled_call_ends_at_once(
    servers: McpServers, folder: Path, name: str, arguments: dict[str, int], note: str
) -> None:
    notes: list[str] = []
    context = ToolContext("c1", "key-1", heartbeat=notes.append)
    call = asyncio.create_task(call_tool_of(servers, name, context, **arguments))
    await wait_until(lambda: _is_there(notes))
    call.cancel()
    done, _ = await asyncio.wait((call,), timeout=AT_ONCE_S)
    assert done
    assert call.cancelled()
    assert notes[0] == note
    if name == "modern_wait":
        await wait_until(lambda: asyncio.to_thread((folder / "cancelled").exists))
    assert await call_tool_of(servers, "http_echo", message="still there") == "Echo: still there"


async def test_an_answer_over_the_limit_fails_only_its_own_call(servers: McpServers) -> None:
    with pytest.raises(ToolError):
        await call_tool_of(servers, "modern_big")
    assert await call_tool_of(servers, "modern_add", a=1, b=1) == "2"


async def test_headers_reach_the_server(folder: Path) -> None:
    with mcp_http.modern(folder) as server:
        env = {"KEY": "abcdef-header", "TOKEN": "abcdef-token"}
        wanted = McpServer(url=server.url, headers_from={"X-Key": "KEY"}, bearer_from="TOKEN")
        async with source_of(env, modern=wanted) as source:
            assert await call_tool_of(source, "modern_header", name="x-key") == "[redacted]"
            assert await call_tool_of(source, "modern_header", name="authorization") == "Bearer [redacted]"


async def test_a_restarted_server_that_forgot_its_sessions_is_called_again() -> None:
    port = free_port()
    with mcp_http.everything(port) as first:
        async with source_of(http=McpServer(url=first.url)) as source:
            assert await call_tool_of(source, "http_echo", message="one") == "Echo: one"
            first.process.kill()
            first.process.wait()
            with pytest.raises(ToolError) as raised:
                await call_tool_of(source, "http_echo", message="two")
            assert raised.value.kind == UNAVAILABLE
            with mcp_http.everything(port):

                async def is_back() -> bool:
                    try:
                        return await call_tool_of(source, "http_echo", message="three") == "Echo: three"
                    except ToolError:
                        return False

                await wait_until(is_back)


async def _is_there(notes: list[str]) -> bool:
    return bool(notes)
