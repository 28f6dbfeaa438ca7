"""MCP servers that hang, die, lie and flood: their tools become unavailable, and nothing else happens."""

import asyncio
import os
import signal
import socket
import time
from collections.abc import Awaitable
from pathlib import Path
from typing import Any

import pytest

from orga.activities.adapters.mcp import connection, keeper
from orga.activities.adapters.mcp.connection import BAD_RESULT
from orga.activities.adapters.mcp.keeper import UNAVAILABLE
from orga.activities.adapters.mcp.servers import CHANGED, REPORTED
from orga.activities.ports import ToolContext, ToolError
from orga.workflows.types.tool_calls.mcp import McpServer
from orga.workflows.types.tool_calls.tools import PROCESS_CRASHED
from tests.support.hold import PATIENCE_S, wait_until
from tests.support.mcp.sources import a_definition, call_tool_of, hostile, received_messages, set_definitions, source_of
from tests.support.programs.processes import is_running, wait_for_pids

SECRET = "s3cr3t-token-value"
ENV = {**os.environ, "HOSTILE_TOKEN": SECRET, "UNNAMED_SECRET": "never-to-be-seen"}


def with_secret(folder: Path) -> McpServer:
    """Return a server that is given a secret."""
    return hostile(folder, tools=["env", "fail", "progress"], env_from=("HOSTILE_TOKEN",))


async def refusal(call: Awaitable[str]) -> ToolError:
    with pytest.raises(ToolError) as raised:
        await call
    return raised.value


async def test_a_server_that_never_answers_delays_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("orga.activities.adapters.mcp.servers.START_S", 2 * PATIENCE_S)
    server = hostile(tmp_path, "silent", connect_timeout_s=0.5)
    began = time.monotonic()
    async with source_of(s=server) as source:
        assert time.monotonic() - began < PATIENCE_S
        assert await source.specs(["s_echo"]) == {}
        error = await refusal(call_tool_of(source, "s_echo"))
        assert (error.kind, error.retryable) == (UNAVAILABLE, True)
        assert "not ready within 0.5 s" in str(error)
        absent = source.absent_tool("s_echo")
        assert absent
        assert absent.is_temporary


async def test_a_worker_starts_although_a_server_is_slower(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("orga.activities.adapters.mcp.servers.START_S", 0.2)
    began = time.monotonic()
    async with source_of(s=hostile(tmp_path, "silent", connect_timeout_s=2 * PATIENCE_S)) as source:
        assert time.monotonic() - began < PATIENCE_S
        monkeypatch.setattr(keeper, "WAIT_S", 0.1)
        assert "being connected to" in str(await refusal(call_tool_of(source, "s_echo")))
        began = time.monotonic()
    assert time.monotonic() - began < keeper.STOP_S
    (pid,) = await wait_for_pids(tmp_path / "pid")
    assert not is_running(pid)


@pytest.mark.parametrize(
    ("server", "why"),
    [
        pytest.param(McpServer(command="no-such-program-here"), "No such file", id="no such program"),
        pytest.param(McpServer(command="false"), "closed", id="ends at once"),
        pytest.param(McpServer(url="http://127.0.0.1:9/mcp"), "no connection", id="nobody listens"),
    ],
)
async def test_a_missing_server_is_unavailable(server: McpServer, why: str) -> None:
    async with source_of(s=server) as source:
        error = await refusal(call_tool_of(source, "s_echo"))
    assert error.kind == UNAVAILABLE
    assert why in str(error)


async def test_the_last_output_of_an_ended_server_is_reported_without_its_secrets(tmp_path: Path) -> None:
    async with source_of(ENV, s=hostile(tmp_path, "exits", env_from=("HOSTILE_TOKEN",))) as source:
        error = await refusal(call_tool_of(source, "s_echo"))
    assert "cannot start with [redacted]" in str(error)


async def test_a_server_that_accepts_and_never_answers_is_unavailable() -> None:
    with socket.socket() as mute:
        mute.bind(("127.0.0.1", 0))
        mute.listen()
        server = McpServer(url=f"http://127.0.0.1:{mute.getsockname()[1]}/mcp", connect_timeout_s=0.5)
        async with source_of(s=server) as source:
            error = await refusal(call_tool_of(source, "s_echo"))
    assert error.kind == UNAVAILABLE


async def test_a_server_that_dies_in_a_call_has_an_unknown_effect_and_is_restarted(tmp_path: Path) -> None:
    async with source_of(s=hostile(tmp_path, tools=["die", "pid"])) as source:
        first = await call_tool_of(source, "s_pid")
        error = await refusal(call_tool_of(source, "s_die"))
        assert (error.kind, error.retryable) == (PROCESS_CRASHED, True)
        assert await call_tool_of(source, "s_pid") != first


async def test_a_server_killed_between_two_calls_is_restarted_for_the_second(tmp_path: Path) -> None:
    async with source_of(s=hostile(tmp_path, tools=["pid"])) as source:
        pid = int(await call_tool_of(source, "s_pid"))
        os.kill(pid, signal.SIGKILL)
        await wait_until(lambda: _is_gone(pid))
        assert int(await call_tool_of(source, "s_pid")) != pid


async def test_a_server_that_hangs_in_a_call_is_restarted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keeper, "PROOF_S", 0.2)
    async with source_of(s=hostile(tmp_path, tools=["hang", "pid"])) as source:
        pid = int(await call_tool_of(source, "s_pid"))
        call = asyncio.create_task(call_tool_of(source, "s_hang"))
        await wait_until(lambda: _has_received(tmp_path, "hang"))
        call.cancel()
        await asyncio.wait((call,), timeout=PATIENCE_S)
        assert call.cancelled()
        await wait_until(lambda: _is_gone(pid))
        assert int(await call_tool_of(source, "s_pid")) != pid


async def test_a_slow_server_is_notified_of_a_cancelled_call_and_not_restarted(tmp_path: Path) -> None:
    async with source_of(s=hostile(tmp_path, tools=["slow", "pid"])) as source:
        pid = await call_tool_of(source, "s_pid")
        call = asyncio.create_task(call_tool_of(source, "s_slow"))
        await wait_until(lambda: _has_received(tmp_path, "slow"))
        call.cancel()
        await wait_until(lambda: _has_received(tmp_path, "notifications/cancelled"))
        assert await call_tool_of(source, "s_pid") == pid
    cancelled = next(m for m in received_messages(tmp_path) if m["method"] == "notifications/cancelled")
    slow = next(m for m in received_messages(tmp_path) if m.get("params", {}).get("name") == "slow")
    assert cancelled["params"]["requestId"] == slow["id"]


async def test_a_stubborn_server_and_its_child_are_gone_when_the_worker_stops(tmp_path: Path) -> None:
    async with source_of(s=hostile(tmp_path, "stubborn", "child", tools=["echo"])) as source:
        assert await call_tool_of(source, "s_echo", a=1) == '{"a": 1}'
        (pid,) = await wait_for_pids(tmp_path / "pid")
        (child,) = await wait_for_pids(tmp_path / "child")
        assert is_running(pid)
        began = time.monotonic()
    assert time.monotonic() - began < keeper.STOP_S
    assert not is_running(pid)
    await wait_until(lambda: _is_gone(child))


async def test_a_line_that_is_not_a_message_is_skipped(tmp_path: Path) -> None:
    async with source_of(s=hostile(tmp_path, "banner", tools=["noisy"])) as source:
        assert await call_tool_of(source, "s_noisy") == "after the noise"


async def test_a_large_result_is_accepted(tmp_path: Path) -> None:
    async with source_of(s=hostile(tmp_path, tools=["big"])) as source:
        assert len(await call_tool_of(source, "s_big")) == 10_000_000


async def test_an_endless_line_ends_the_connection_and_not_the_worker(tmp_path: Path) -> None:
    async with source_of(s=hostile(tmp_path, tools=["endless", "echo"])) as source:
        assert (await refusal(call_tool_of(source, "s_endless"))).kind == PROCESS_CRASHED
        assert await call_tool_of(source, "s_echo") == "{}"


async def test_an_invalid_result_is_an_error_of_the_call(tmp_path: Path) -> None:
    async with source_of(s=hostile(tmp_path, tools=["nonsense", "echo"])) as source:
        error = await refusal(call_tool_of(source, "s_nonsense"))
        assert (error.kind, error.retryable) == (BAD_RESULT, False)
        assert await call_tool_of(source, "s_echo") == "{}"


async def test_an_answer_that_is_not_utf_8_is_read_and_its_call_is_made_once(tmp_path: Path) -> None:
    async with source_of(s=hostile(tmp_path, tools=["latin", "broken", "odd"])) as source:
        assert await call_tool_of(source, "s_latin") == "caf\ufffd"
        began = time.monotonic()
        assert "cannot be read" in str(await refusal(call_tool_of(source, "s_broken")))
        assert time.monotonic() - began < PATIENCE_S
        assert await call_tool_of(source, "s_odd") == 'the text\n{"result":["no","object"]}'
    assert [m["params"]["name"] for m in received_messages(tmp_path) if m["method"] == "tools/call"] == [
        "latin",
        "broken",
        "odd",
    ]


async def test_a_repeated_cursor_ends_the_list(tmp_path: Path) -> None:
    async with source_of(s=hostile(tmp_path, "circle")) as source:
        assert list(await source.specs(["s_*"])) == ["s_echo"]
    assert [m.get("params", {}).get("cursor") for m in received_messages(tmp_path) if m["method"] == "tools/list"] == [
        None,
        "0",
        "1",
    ]


async def test_a_faulty_tool_makes_only_that_tool_unavailable(tmp_path: Path) -> None:
    odd = [
        a_definition("empty", inputSchema={}),
        a_definition("null", inputSchema=None),
        a_definition("nil", inputSchema={"type": "object", "properties": {"a": {}}, "required": None}),
        a_definition("titled", title=7, annotations={"readOnlyHint": "maybe"}, outputSchema=[]),
        a_definition("text", inputSchema="a text"),
        a_definition("list", inputSchema={"type": "array"}),
        {"description": "nameless"},
        7,
        a_definition("seven", inputSchema={"properties": {"a": {"type": 7}}}),
    ]
    async with source_of(s=hostile(tmp_path, tools=[*odd, "echo"])) as source:
        specs = await source.specs(["s_*"])
        assert list(specs) == ["s_empty", "s_null", "s_nil", "s_titled", "s_echo"]
        assert specs["s_null"].parameters == {"type": "object"}
        assert await call_tool_of(source, "s_empty") == "ok"
        for name, why in (("text", "inputSchema"), ("list", "inputSchema.type"), ("seven", "is invalid")):
            absent = source.absent_tool(f"s_{name}")
            assert absent
            assert why in absent.why


async def test_five_hundred_tools_with_odd_names_get_valid_names(tmp_path: Path) -> None:
    tools = [*(f"tool {n}!" for n in range(250)), *(f"{'long' * 20}{n}" for n in range(250))]
    async with source_of(s=hostile(tmp_path, tools=tools)) as source:
        specs = await source.specs(["s_*"])
        assert len(specs) == 500
        assert all(len(name) <= 64 and name.isascii() and " " not in name for name in specs)
        assert await call_tool_of(source, next(reversed(specs))) == "ok"


async def test_tools_that_cannot_be_offered_are_left_out_with_a_reason(tmp_path: Path) -> None:
    bad = a_definition("bad", inputSchema={"type": "object", "properties": {"a": {"$ref": "http://127.0.0.1:9/"}}})
    huge = a_definition("huge", inputSchema={"type": "object", "description": "", "enum": ["x" * 100_000]})
    async with source_of(s=hostile(tmp_path, tools=[bad, "echo", huge])) as source:
        assert list(await source.specs(["s_*"])) == ["s_echo"]
        absent = source.absent_tool("s_huge")
        assert absent
        assert "over the limit" in absent.why
        assert not absent.is_temporary
        assert (await refusal(call_tool_of(source, "s_bad"))).kind == CHANGED


@pytest.mark.parametrize(
    "after",
    [
        pytest.param(a_definition("echo", description="harmless!"), id="changed"),
        pytest.param(a_definition("another"), id="gone"),
    ],
)
async def test_a_tool_whose_definition_changed_is_not_called(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, after: dict[str, Any]
) -> None:
    async with source_of(s=hostile(tmp_path)) as source:
        pinned = (await source.specs([]))["s_echo"].digest
        monkeypatch.setattr(connection, "FRESH_S", 0.0)
        set_definitions(tmp_path, after)
        tool = source.tool("s_echo", pinned)
        assert tool
        error = await refusal(_content(tool.call({}, ToolContext("c1", "key-1"))))
        assert (error.kind, error.retryable) == (CHANGED, False)
    assert not await _has_received(tmp_path, "tools/call")


async def test_a_server_gets_only_the_named_environment_variables(tmp_path: Path) -> None:
    async with source_of(ENV, s=with_secret(tmp_path)) as source:
        output = await call_tool_of(source, "s_env")
    assert '"HOSTILE_TOKEN": "[redacted]"' in output
    assert "UNNAMED_SECRET" not in output
    assert "never-to-be-seen" not in output


async def test_a_secret_returned_by_a_server_is_redacted(tmp_path: Path) -> None:
    notes: list[str] = []
    async with source_of(ENV, s=with_secret(tmp_path)) as source:
        error = await refusal(call_tool_of(source, "s_fail"))
        await call_tool_of(source, "s_progress", ToolContext("c1", "key-1", heartbeat=notes.append))
    assert (error.kind, str(error)) == (REPORTED, "it failed with [redacted]")
    assert notes == ["half done [redacted] 1"]


async def test_all_attempts_of_a_call_have_one_key(tmp_path: Path) -> None:
    async with source_of(s=hostile(tmp_path, tools=["meta"])) as source:
        assert '"orga/idempotency-key": "key-1"' in await call_tool_of(source, "s_meta")


async def _content(call: Awaitable[Any]) -> str:
    return (await call).content


async def _is_gone(pid: int) -> bool:
    return not is_running(pid)


async def _has_received(folder: Path, what: str) -> bool:
    return any(what in {m["method"], m.get("params", {}).get("name")} for m in received_messages(folder))
