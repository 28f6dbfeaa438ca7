"""14 MB of notifications of an MCP server block nobody, and a server that sends far too much is disconnected."""

import asyncio
import logging
from collections.abc import Awaitable
from pathlib import Path

import pytest

from orga.activities.ports import ToolError
from orga.workflows.types.tool_calls.mcp import McpServer
from orga.workflows.types.tool_calls.tools import PROCESS_CRASHED
from tests.support.mcp.floods import FLOODS, flood
from tests.support.mcp.hostile_http import hostile_http
from tests.support.mcp.sources import call_tool_of, hostile, source_of
from tests.support.programs.standstill import LIMIT_S, longest_pause

PATIENCE_S = 90.0
AFTER_S = 1.0
"""Seconds in which unrequested data is read."""

WHY = ("it sends far more than it is asked for", "it sent a message of more than 100,000 parts")


async def refusal(call: Awaitable[str]) -> ToolError:
    with pytest.raises(ToolError) as raised:
        async with asyncio.timeout(PATIENCE_S):
            await call
    return raised.value


def check_left(error: ToolError) -> None:
    """Assert that the server was disconnected by name and for its flood, and that the effect of the call is unknown."""
    assert error.kind == PROCESS_CRASHED
    assert "MCP server 's'" in str(error)
    assert any(why in str(error) for why in WHY), error
    assert error.acted == "maybe"


def check_logged(caplog: pytest.LogCaptureFixture) -> None:
    warnings = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert any(text.startswith("MCP server s: ") and any(why in text for why in WHY) for text in warnings), warnings


@pytest.mark.parametrize("kind", FLOODS)
async def test_a_flood_over_stdio_during_a_call(tmp_path: Path, kind: str, caplog: pytest.LogCaptureFixture) -> None:
    async with source_of(s=hostile(tmp_path, tools=["flood", "echo"])) as source:
        await source.specs(["s_*"])
        (tmp_path / "flood").write_text("\n".join(flood(kind)))
        found: list[ToolError] = []

        async def call() -> None:
            found.append(await refusal(call_tool_of(source, "s_flood")))

        assert await longest_pause(call()) < LIMIT_S
        check_left(found[0])
        assert await call_tool_of(source, "s_echo") == "{}"
    check_logged(caplog)


@pytest.mark.parametrize("kind", FLOODS)
async def test_an_unrequested_flood_over_stdio(tmp_path: Path, kind: str, caplog: pytest.LogCaptureFixture) -> None:
    async with source_of(s=hostile(tmp_path, tools=["later", "echo"])) as source:
        await source.specs(["s_*"])
        (tmp_path / "flood").write_text("\n".join(flood(kind)))

        async def call() -> None:
            assert await call_tool_of(source, "s_later") == "before the flood"
            await asyncio.sleep(AFTER_S)

        assert await longest_pause(call()) < LIMIT_S
        for _ in range(120):
            if "again in" in caplog.text:
                break
            await asyncio.sleep(0.5)
        assert await call_tool_of(source, "s_echo") == "{}"
    check_logged(caplog)


@pytest.mark.parametrize("kind", FLOODS)
async def test_a_flood_over_http_during_a_call(kind: str, caplog: pytest.LogCaptureFixture) -> None:
    with hostile_http() as server:
        async with source_of(s=McpServer(url=server.url)) as source:
            assert await call_tool_of(source, "s_act") == "done"
            server.answer = f"flood {kind}"
            found: list[ToolError] = []

            async def call() -> None:
                found.append(await refusal(call_tool_of(source, "s_act")))

            assert await longest_pause(call()) < LIMIT_S
            check_left(found[0])
            server.answer = "result"
            assert await call_tool_of(source, "s_act") == "done"
    check_logged(caplog)


@pytest.mark.parametrize("kind", FLOODS)
async def test_an_unrequested_flood_over_http(kind: str, caplog: pytest.LogCaptureFixture) -> None:
    """It uses the stream that a client opens for messages of the server."""
    with hostile_http() as server:
        async with source_of(s=McpServer(url=server.url)) as source:

            async def call() -> None:
                server.flood = kind
                async with asyncio.timeout(PATIENCE_S):
                    while "again in" not in caplog.text:
                        await asyncio.sleep(0.1)

            await source.specs(["s_*"])
            assert await longest_pause(call()) < LIMIT_S
            server.flood = ""
    check_logged(caplog)


async def test_an_answer_of_many_megabytes_is_read(tmp_path: Path) -> None:
    async with source_of(s=hostile(tmp_path, tools=["big"])) as source:
        assert len(await call_tool_of(source, "s_big")) > 1_000


@pytest.mark.parametrize("kind", ["event", "body"])
async def test_an_answer_of_a_million_parts_is_refused(kind: str) -> None:
    """This includes an answer that is not a stream."""
    with hostile_http() as server:
        async with source_of(s=McpServer(url=server.url)) as source:
            await source.specs(["s_*"])
            server.answer = f"parts {kind}"
            found: list[ToolError] = []

            async def call() -> None:
                found.append(await refusal(call_tool_of(source, "s_act")))

            assert await longest_pause(call()) < LIMIT_S
            assert "more than 100,000 parts" in str(found[0])
