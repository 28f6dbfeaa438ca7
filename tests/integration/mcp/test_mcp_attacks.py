"""Attacks of MCP servers on the worker that calls them: no call runs twice, nobody waits, and no secret leaks."""

import asyncio
import json
import re
from collections.abc import Awaitable
from pathlib import Path

import pytest

from orga.activities.adapters.mcp import connection, http_server
from orga.activities.adapters.mcp.connection import MAX_PAGES, REFUSED, SERVER_FAILED
from orga.activities.ports import ToolError
from orga.workflows.types.tool_calls.mcp import McpServer
from orga.workflows.types.tool_calls.tools import PROCESS_CRASHED
from tests.support.mcp.hostile_http import hostile_http
from tests.support.mcp.sources import call_tool_of, hostile, received_messages, source_of

AT_ONCE_S = 10.0
"""Seconds. Far less than a call may take, far more than an answer needs."""


async def refusal(call: Awaitable[str]) -> ToolError:
    with pytest.raises(ToolError) as raised:
        await call
    return raised.value


PRETENDED = [
    pytest.param("terminated", REFUSED, id="a session that is over"),
    pytest.param("unsent", SERVER_FAILED, id="a call that never left"),
]


@pytest.mark.parametrize(("answer", "kind"), PRETENDED)
async def test_a_server_that_acts_and_denies_it_is_called_once(tmp_path: Path, answer: str, kind: str) -> None:
    """Only a call that certainly had no effect is repeated, and only the worker itself can know that."""
    async with source_of(s=hostile(tmp_path, tools=[answer])) as source:
        error = await refusal(call_tool_of(source, f"s_{answer}"))
    assert (error.kind, error.retryable) == (kind, False)
    assert len([m for m in received_messages(tmp_path) if m["method"] == "tools/call"]) == 1


@pytest.mark.parametrize(("answer", "kind"), PRETENDED)
async def test_an_http_server_that_acts_and_denies_it_is_called_once(answer: str, kind: str) -> None:
    with hostile_http() as server:
        async with source_of(s=McpServer(url=server.url)) as source:
            server.answer = answer
            error = await refusal(call_tool_of(source, "s_act"))
        assert (error.kind, error.retryable, server.calls) == (kind, False, 1)


async def test_a_server_that_lost_its_sessions_is_reconnected_and_acts_once() -> None:
    """Many servers report this with their own error in a response with status 404."""
    with hostile_http() as server:
        async with source_of(s=McpServer(url=server.url)) as source:
            assert await call_tool_of(source, "s_act") == "done"
            server.sessions += 1
            assert await call_tool_of(source, "s_act") == "done"
        assert (server.calls, server.methods.count("initialize")) == (2, 2)


@pytest.mark.parametrize("status", [401, 404, 429, 503])
async def test_an_http_status_is_reported_even_if_the_rest_is_cut(status: int) -> None:
    with hostile_http() as server:
        async with source_of(s=McpServer(url=server.url)) as source:
            server.answer = f"{status} cut"
            error = await refusal(call_tool_of(source, "s_act"))
            server.answer = "result"
            assert await call_tool_of(source, "s_act") == "done"
        assert (error.kind, error.acted, f"HTTP status {status}" in str(error)) == (SERVER_FAILED, "maybe", True)
        assert server.methods.count("initialize") == 1


@pytest.mark.parametrize("kind", ["application/json", "text/html"])
async def test_a_scope_that_the_token_lacks_is_named(kind: str) -> None:
    with hostile_http() as server:
        async with source_of(s=McpServer(url=server.url)) as source:
            server.answer = f"scope {kind}"
            error = await refusal(call_tool_of(source, "s_act"))
    assert "HTTP status 403: the token lacks the scope 'repo admin'. Give it to the client, or to a new login" in str(
        error
    )
    assert error.acted == "no"


async def test_an_event_stream_that_ends_without_the_answer_is_an_error_at_once() -> None:
    with hostile_http() as server:
        async with source_of(s=McpServer(url=server.url)) as source:
            server.answer = "events end"
            async with asyncio.timeout(AT_ONCE_S):
                assert (await refusal(call_tool_of(source, "s_act"))).acted == "maybe"
        assert server.calls == 1


@pytest.mark.parametrize("answer", ["half", "half event", "latin", "latin event"])
async def test_an_http_answer_with_half_a_character_is_read(answer: str) -> None:
    with hostile_http() as server:
        async with source_of(s=McpServer(url=server.url)) as source:
            server.answer = answer
            assert await call_tool_of(source, "s_act") == "done \ufffd"
        assert server.calls == 1


async def test_an_unreadable_http_answer_is_an_error_at_once() -> None:
    with hostile_http() as server:
        async with source_of(s=McpServer(url=server.url)) as source:
            server.answer = "no json"
            async with asyncio.timeout(AT_ONCE_S):
                assert "Failed to parse" in str(await refusal(call_tool_of(source, "s_act")))


async def test_a_stream_that_ends_at_once_is_not_reopened_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_server, "STREAM_PAUSE_S", 60.0)
    with hostile_http() as server:
        async with source_of(s=McpServer(url=server.url)) as source:
            for _ in range(20):
                await call_tool_of(source, "s_act")
                await asyncio.sleep(0.02)  # some time in which to open it
        assert server.streams == 1


@pytest.mark.parametrize(
    ("tool", "answer"),
    [
        pytest.param("half", "\ufffd", id="half a character"),
        pytest.param("others", "mine", id="answers to requests that were never made"),
        pytest.param("storm", "after the storm", id="a thousand changes of its list"),
    ],
)
async def test_an_answer_is_read_despite_the_noise(tmp_path: Path, tool: str, answer: str) -> None:
    async with source_of(s=hostile(tmp_path, tools=[tool])) as source, asyncio.timeout(AT_ONCE_S):
        assert await call_tool_of(source, f"s_{tool}") == answer


async def test_a_server_may_not_request_anything(tmp_path: Path) -> None:
    async with source_of(s=hostile(tmp_path, tools=["asks"])) as source:
        answers = [json.loads(line) for line in (await call_tool_of(source, "s_asks")).splitlines()]
    assert [answer["id"] for answer in answers] == ["a0", "a1", "a2", "a3"]
    assert all("error" in answer for answer in answers)


@pytest.mark.parametrize(
    "tool",
    [
        pytest.param("deep", id="an answer nested too deeply to read"),
        pytest.param("deaf", id="endless requests, and ignored answers"),
    ],
)
async def test_a_server_that_sends_nonsense_is_given_up_at_once(tmp_path: Path, tool: str) -> None:
    async with source_of(s=hostile(tmp_path, tools=[tool, "echo"])) as source, asyncio.timeout(AT_ONCE_S):
        assert (await refusal(call_tool_of(source, f"s_{tool}"))).kind == PROCESS_CRASHED
        assert await call_tool_of(source, "s_echo") == "{}"


async def test_thousands_of_invalid_lines_do_not_block_the_worker(tmp_path: Path) -> None:
    turns = 0

    async def work() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    async with source_of(s=hostile(tmp_path, tools=["junk"])) as source:
        worker = asyncio.create_task(work())
        assert await call_tool_of(source, "s_junk") == "after the junk"
        worker.cancel()
    assert turns > 10_000


async def test_an_endless_tool_list_is_cut(tmp_path: Path) -> None:
    async with source_of(s=hostile(tmp_path, "pages")) as source:
        assert list(await source.specs(["s_*"])) == ["s_echo"]
    assert int((tmp_path / "pages").read_text()) == MAX_PAGES - 1


async def test_a_tool_list_with_too_many_bytes_is_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "MAX_PAGES_BYTES", 1_000_000)
    async with source_of(s=hostile(tmp_path, "pages", "heavy")) as source:
        descriptions = [spec.description for spec in (await source.specs(["s_*"])).values()]
    assert len(descriptions) == 5
    assert all(re.match(r"\[sanitized: removed \d+ zero-width characters]\nx+", each) for each in descriptions)
