"""Tools that block, ignore cancellation or crash: each is stopped at its time limit, and its worker continues."""

import asyncio
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from temporalio.client import Client

from orga.activities.adapters.tools.catalog import with_options
from orga.activities.adapters.tools.python_function import PythonFunction, load_function
from orga.activities.ports import Tool, ToolContext
from orga.activities.replies import MAX_CALLS
from orga.testing import FakeTool, ScriptedModel, answers, calls
from orga.workflows.types.tool_calls.tools import ToolOptions
from tests.support.hold import PATIENCE_S, Hold, wait_until
from tests.support.programs.processes import is_alive, is_running, wait_for_pids, wait_until_ended
from tests.support.runs.loop import a_loop
from tests.support.tools import blocking as blocking_tools

LIMIT_S = 5
"""Seconds. It leaves a worker one second to report the time limit before the server does."""

SLOW_LIMIT_S = 20
"""Seconds. For a machine on which no process starts within the other limit."""

CUT_OFF = "[Error] TimeLimit: {} took longer than its {} s"


def within_limit(tool: Tool, limit_s: int = LIMIT_S) -> Tool:
    return with_options([tool], {tool.spec.name: ToolOptions(timeout_s=limit_s, max_attempts=1)})[0]


def stands_still(path: Path, how: str, limit_s: int = LIMIT_S) -> tuple[Tool, ScriptedModel]:
    arguments = {"path": str(path), "how": how}
    provider = ScriptedModel([calls("stands_still", arguments=arguments), answers("went on")], repeats=True)
    return within_limit(PythonFunction(blocking_tools.stands_still), limit_s), provider


def result_of(provider: ScriptedModel) -> str:
    """Return the result that the model received."""
    return provider.seen[1].messages[-1].text


@pytest.mark.parametrize("how", ["spinning", "deaf", "in C", "with children"])
async def test_a_blocking_tool_is_killed_at_its_time_limit_and_the_run_continues(
    client: Client, tmp_path: Path, how: str
) -> None:
    path = tmp_path / "pids"
    for limit_s in (LIMIT_S, SLOW_LIMIT_S):
        tool, provider = stands_still(path, how, limit_s)
        async with a_loop(client, provider, tool) as loop:
            ran = await loop.run()
        assert (ran.result.output, result_of(provider)) == ("went on", CUT_OFF.format("stands_still", limit_s))
        if path.exists():
            break

    pids = await wait_for_pids(path)
    await wait_until_ended(pids)
    assert not is_alive(pids[0])


async def test_an_abort_kills_a_blocking_tool_long_before_its_time_limit(client: Client, tmp_path: Path) -> None:
    arguments = {"path": str(tmp_path / "pids"), "how": "deaf"}
    provider = ScriptedModel([calls("stands_still", arguments=arguments)], repeats=True)
    async with a_loop(client, provider, PythonFunction(blocking_tools.stands_still)) as loop:
        handle = await loop.start(tool_timeout_s=200, timeout_s=250)
        pids = await wait_for_pids(tmp_path / "pids")
        await handle.signal("abort", "enough")
        ran = await asyncio.wait_for(loop.ended(handle), PATIENCE_S)

        assert ran.result.termination.reason == "aborted"
        assert not any(map(is_running, pids)), "the run must end after the tool"


async def test_a_crash_is_reported_and_the_worker_survives(client: Client) -> None:
    provider = ScriptedModel([calls("crashes", arguments={"how": "segfault"}), answers("went on")], repeats=True)
    async with a_loop(client, provider, PythonFunction(blocking_tools.crashes)) as loop:
        ran = await loop.run()

    assert ran.result.output == "went on"
    text = "[Error] ProcessCrashed: crashes ended its process without a result: killed by SIGSEGV"
    assert result_of(provider).startswith(text)


async def test_a_crash_is_retried_if_that_does_no_harm(client: Client, tmp_path: Path) -> None:
    options = {"crashes_once": ToolOptions(initial_interval_s=0.01)}
    (tool,) = with_options([load_function("tests.support.tools.blocking:crashes_once")], options)
    provider = ScriptedModel(
        [calls("crashes_once", arguments={"path": str(tmp_path / "been here")}), answers()], repeats=True
    )
    async with a_loop(client, provider, tool) as loop:
        await loop.run()

    assert result_of(provider) == "attempt 2"


async def test_a_blocked_thread_is_abandoned_and_blocks_no_other_call(
    client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    """The call ends at its time limit and says what to change, and the worker's only slot is free again."""
    entered, let_go = threading.Event(), threading.Event()

    def stuck(context: ToolContext) -> str:
        entered.set()
        let_go.wait()
        return "late"

    provider = ScriptedModel([calls("stuck"), answers("went on")], repeats=True)
    tool = within_limit(PythonFunction(stuck))
    try:
        async with a_loop(client, provider, tool, max_concurrent_activities=2) as loop:
            first = await loop.run()
            second = await loop.run()
    finally:
        let_go.set()

    assert (first.result.output, second.result.output) == ("went on", "went on")
    advice = " and its thread cannot be stopped; declare it blocking: @tool(blocking=True)"
    assert result_of(provider).startswith(CUT_OFF.format("stuck", LIMIT_S) + advice)
    assert "declare it blocking: @tool(blocking=True), or isolation" in caplog.text


async def test_a_coroutine_that_ignores_its_cancellation_is_abandoned(client: Client) -> None:
    ignored = asyncio.Event()
    let_go = asyncio.Event()

    async def ignores(arguments: dict[str, Any], context: ToolContext) -> str:
        while not let_go.is_set():
            try:
                await let_go.wait()
            except asyncio.CancelledError:
                ignored.set()
        return "late"

    provider = ScriptedModel([calls("ignores"), answers("went on")], repeats=True)
    try:
        async with a_loop(client, provider, within_limit(FakeTool("ignores", ignores))) as loop:
            ran = await loop.run()
            assert ignored.is_set()
    finally:
        let_go.set()

    assert (ran.result.output, result_of(provider)) == ("went on", CUT_OFF.format("ignores", LIMIT_S))


async def test_the_worker_serves_another_run_while_a_process_spins(client: Client, tmp_path: Path) -> None:
    arguments = {"path": str(tmp_path / "pids"), "how": "in C"}
    provider = ScriptedModel([calls("stands_still", arguments=arguments), answers("meanwhile")], repeats=True)
    async with a_loop(client, provider, PythonFunction(blocking_tools.stands_still)) as loop:
        handle = await loop.start(tool_timeout_s=200, timeout_s=250)
        pids = await wait_for_pids(tmp_path / "pids")
        assert (await loop.run()).result.output == "meanwhile"
        assert all(map(is_running, pids))
        await handle.signal("abort")
        await loop.ended(handle)


async def test_the_worker_serves_another_run_while_threads_block(client: Client) -> None:
    """The blocked threads are as many as one reply may ask for. The shared pool of a small machine has fewer."""
    entered: list[int] = []
    let_go = threading.Event()

    def blocks() -> str:
        entered.append(threading.get_ident())
        let_go.wait()
        return "let go"

    async def all_stand_still() -> bool:
        return len(entered) == many

    def quick() -> str:
        return "quick"

    many = MAX_CALLS
    provider = ScriptedModel([calls(*["blocks"] * many), calls("quick"), answers("meanwhile"), answers()], repeats=True)
    async with a_loop(client, provider, PythonFunction(blocks), PythonFunction(quick)) as loop:
        handle = await loop.start(max_concurrent_tools=many)
        try:
            await wait_until(all_stand_still)
            assert (await loop.run()).result.output == "meanwhile"
        finally:
            let_go.set()
        assert (await loop.ended(handle)).result.tool_calls.failed == 0

    assert provider.seen[2].messages[-1].text == "quick"


@pytest.mark.parametrize("timeout_s", [pytest.param(2, id="its own"), pytest.param(None, id="the run's, shortened")])
async def test_an_abort_is_handled_within_the_time_limit_of_a_local_call(
    client: Client, timeout_s: float | None
) -> None:
    """That limit is at most two seconds, and the run handles signals before the next attempt."""
    hold = Hold()
    options = ToolOptions(execution="local", timeout_s=timeout_s, max_attempts=5)
    (tool,) = with_options([FakeTool("peek", lambda a, c: hold.then("never"))], {"peek": options})
    async with a_loop(client, [calls("peek")], tool) as loop:
        handle = await loop.start()
        await hold.reached()
        await handle.signal("abort", "enough")
        began = time.monotonic()
        ran = await loop.ended(handle)

    assert time.monotonic() - began < PATIENCE_S, "another attempt would have taken minutes"
    assert ran.result.termination.reason == "aborted"
    assert hold.cancelled.is_set()
