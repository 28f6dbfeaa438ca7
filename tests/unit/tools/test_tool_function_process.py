"""Python functions in their own processes end with the call, whatever they do."""

import asyncio
import logging
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from temporalio.exceptions import ApplicationError

from orga.activities.adapters.tools.function_process import GRACE_S
from orga.activities.adapters.tools.python_function import PythonFunction, load_function
from orga.activities.calls.tools import CallServices, tool_activities
from orga.activities.models.conversations import Conversations
from orga.activities.ports import ToolContext
from orga.activities.tools_api import tool
from orga.workflows.types.tool_calls.tools import PROCESS_CRASHED, REPORT_S, TIME_LIMIT, ToolRequest
from tests.support.hold import PATIENCE_S
from tests.support.programs.processes import is_alive, is_running, open_files, wait_for_pids, wait_until_ended
from tests.support.tools import blocking as blocking_tools
from tests.support.tools import sample as sample_tools
from tests.support.tools.activities import Beats, NoHistory
from tests.support.tools.calls import CONTEXT, failure, result

ROOT = Path(__file__).parents[3]
WAYS = ["asleep", "spinning", "deaf", "in C", "with children"]


def load(name: str) -> PythonFunction:
    return load_function(f"tests.support.tools.blocking:{name}")


def in_a_process(name: str) -> PythonFunction:
    return load_function(f"tests.support.tools.sample:{name}").with_isolation("process")


def call(name: str, **arguments: object) -> asyncio.Task[Any]:
    return asyncio.create_task(load(name).call(arguments, CONTEXT))


async def test_a_blocking_function_gets_a_new_process_for_every_call() -> None:
    first, second = int(await result(load("pid"))), int(await result(load("pid")))
    assert len({first, second, os.getpid()}) == 3
    assert not is_alive(first)


async def test_arguments_and_results_are_the_same_as_in_the_worker() -> None:
    content = await result(in_a_process("weather"), place={"city": "Graz"}, day="2024-05-06", unit="k")
    assert content == '{"city":"Graz","year":2024,"unit":"KELVIN","hours":24}'


@pytest.mark.parametrize("text", ["", "é😀\n", "a" * 300_000], ids=["nothing", "unusual", "longer than a pipe"])
async def test_any_text_is_passed_in_and_out(text: str) -> None:
    assert await result(load("echo"), text=text) == text


async def test_a_lone_surrogate_is_passed_through() -> None:
    """The activity makes the text valid, as for all tools."""
    assert (await failure(in_a_process("raises"), kind="\ud800")).kind == "KeyError"


async def test_a_result_too_large_to_be_passed_on_is_an_error() -> None:
    error = await failure(load("echo"), text="a" * 1_000, times=20_000)
    assert (error.kind, error.retryable) == ("InvalidResult", False)
    assert "the result of echo is too large" in str(error)


@pytest.mark.parametrize(
    ("kind", "expected", "message", "retryable"),
    [
        ("value", "ValueError", "raises failed: ValueError: wrong", False),
        ("os", "OSError", "raises failed: OSError: disk", True),
        ("tool", "Mine", "told", True),
        ("exit", "SystemExit", "raises failed: SystemExit: 3", False),
        ("stop", "StopIteration", "raises failed: StopIteration: ", False),
    ],
)
async def test_exceptions_keep_their_kind(kind: str, expected: str, message: str, retryable: bool) -> None:
    error = await failure(in_a_process("raises"), kind=kind)
    assert (error.kind, str(error), error.retryable) == (expected, message, retryable)


async def test_invalid_arguments_and_results_are_reported() -> None:
    assert (await failure(load("echo"), times=1)).kind == "InvalidArguments"
    assert (await failure(in_a_process("returns"), what="object")).kind == "InvalidResult"


async def test_the_context_is_available_and_notes_are_passed_on() -> None:
    notes: list[str] = []
    context = ToolContext("c9", "k9", attempt=2, workflow_id="w9", heartbeat=notes.append)
    assert (await load("reports").call({}, context)).content == "c9 k9 2 w9"
    assert notes[-1] == "step 9999"
    assert len(notes) < 100, "only the last of many notes are passed on"


async def test_an_async_function_that_blocks_its_loop_does_not_block_the_worker() -> None:
    blocked = asyncio.create_task(result(load("blocks_its_loop"), seconds=PATIENCE_S))
    assert await result(load("echo"), text="a") == "a"
    assert not blocked.done()
    blocked.cancel()
    with pytest.raises(asyncio.CancelledError):
        await blocked
    assert await result(load("blocks_its_loop"), seconds=0.0) == "async"


async def test_output_of_a_function_is_logged_and_never_taken_for_its_result(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        assert await result(load("noisy")) == "heard ''"
    (record,) = [r for r in caplog.records if r.name.endswith("function_process")]
    written = record.getMessage()
    assert all(text in written for text in ("noisy wrote:", "forged", "to stderr", "from a child"))


@pytest.mark.parametrize(
    ("how", "named"),
    [
        pytest.param("exit", "exit code 7", id="an exit without handlers"),
        pytest.param("exit as if all were well", "exit code 0", id="an exit that looks like success"),
        pytest.param("segfault", "killed by SIGSEGV", id="a fault in native code"),
        pytest.param("kill", "killed by SIGKILL", id="killed from outside"),
        pytest.param("close everything", "killed by SIG", id="a closed connection to the worker"),
    ],
)
async def test_a_crash_is_reported_with_its_cause(how: str, named: str, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        error = await failure(load("crashes"), how=how)
    assert (error.kind, error.retryable) == (PROCESS_CRASHED, True)
    assert "crashes ended its process without a result: " in str(error)
    assert named in str(error) or (how == "close everything" and "exit code 143" in str(error))
    assert "last words" in caplog.text


@pytest.mark.parametrize("how", WAYS)
async def test_a_cancelled_call_is_killed_with_all_its_processes(how: str, tmp_path: Path) -> None:
    before, calls = await open_files(), 3
    for number in range(calls):
        file = tmp_path / f"pids of {number}"
        task = call("stands_still", path=str(file), how=how)
        pids = await wait_for_pids(file)
        assert all(map(is_running, pids))
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asyncio.wait_for(task, GRACE_S + 5)
        await wait_until_ended(pids)
        assert not is_alive(pids[0]), "a zombie"
    # others of this process may open one meanwhile, such as the code that the first process gets
    assert await open_files() < before + calls


@pytest.mark.parametrize("how", WAYS)
async def test_a_call_over_its_time_limit_is_killed_and_reported(how: str, tmp_path: Path) -> None:
    (run,) = tool_activities([load("stands_still")], CallServices(Conversations(NoHistory())))
    beats = Beats(start_to_close_timeout=timedelta(seconds=5 + REPORT_S))
    request = ToolRequest(call_id="c1", arguments={"path": str(tmp_path / "pids"), "how": how}, key="k")
    with pytest.raises(ApplicationError, match="stands_still took longer than its 5 s") as caught:
        await asyncio.wait_for(beats.run(run, request), 60)
    assert (caught.value.type, caught.value.non_retryable) == (TIME_LIMIT, False)
    await wait_until_ended(await wait_for_pids(tmp_path / "pids"))


async def test_a_function_can_clean_up_before_it_is_killed(tmp_path: Path) -> None:
    task = call("tidies_up", path=str(tmp_path / "pids"))
    await wait_for_pids(tmp_path / "pids")
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
    assert (tmp_path / "pids").read_text() == "tidied up"


async def test_processes_left_by_a_finished_function_are_killed(tmp_path: Path) -> None:
    assert await result(load("leaves_a_child"), path=str(tmp_path / "pids")) == "left"
    await wait_until_ended(await wait_for_pids(tmp_path / "pids"))


async def test_a_call_cancelled_during_its_start_leaves_nothing() -> None:
    before = await open_files()
    for turns in range(12):
        task = call("echo", text="a")
        for _ in range(turns):
            await asyncio.sleep(0.002)
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
    assert await open_files() == before


async def test_calls_leave_no_files_open_and_no_processes() -> None:
    await result(load("echo"), text="a")
    before = await open_files()
    async with asyncio.TaskGroup() as calls:
        for _ in range(6):
            calls.create_task(result(load("echo"), text="a"))
    assert await open_files() == before


_WORKER = """
import asyncio, sys
from orga.activities.adapters.tools.python_function import load_function
from orga.activities.ports import ToolContext
tool = load_function("tests.support.tools.blocking:stands_still")
asyncio.run(tool.call({"path": sys.argv[1], "how": sys.argv[2]}, ToolContext("c", "k")))
"""


@pytest.mark.parametrize("how", [way for way in WAYS if way != "in C"])
async def test_the_process_ends_with_its_worker_even_if_that_is_killed(how: str, tmp_path: Path) -> None:
    worker = subprocess.Popen([sys.executable, "-c", _WORKER, str(tmp_path / "pids"), how], cwd=ROOT)
    try:
        pids = await wait_for_pids(tmp_path / "pids")
    finally:
        worker.send_signal(signal.SIGKILL)
        worker.wait()
    async with asyncio.timeout(20):
        while any(map(is_running, pids)):
            await asyncio.sleep(0.05)


def inner() -> Callable[[], str]:
    @tool(blocking=True)
    def made_here() -> str:
        return ""

    return made_here


@pytest.mark.parametrize(
    "function",
    [
        pytest.param(inner(), id="made inside another function"),
        pytest.param(blocking_tools.method, id="bound to an object"),
        pytest.param(lambda: "", id="without a name"),
    ],
)
def test_a_function_that_a_process_cannot_import_is_refused(function: Callable[..., Any]) -> None:
    with pytest.raises(ValueError, match=r"define it at the top of a module|does not match"):
        PythonFunction(function)


def test_a_method_named_by_its_path_can_run_in_a_process() -> None:
    assert load("method").spec.options.isolation == "process"


@pytest.mark.parametrize(
    ("function", "isolation"),
    [
        pytest.param(blocking_tools.echo, "process", id="declared blocking"),
        pytest.param(blocking_tools.blocks_its_loop, "process", id="declared blocking though async"),
        pytest.param(sample_tools.thread_name, "thread", id="neither declared nor async"),
        pytest.param(sample_tools.plain, None, id="async is awaited"),
    ],
)
def test_the_definition_determines_where_a_function_runs(function: Callable[..., Any], isolation: str | None) -> None:
    assert PythonFunction(function).spec.options.isolation == isolation
