"""The worker enforces the time limit of a call, whatever the tool does."""

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress
from datetime import timedelta
from typing import Any

import pytest
from temporalio.testing import ActivityEnvironment

from orga.activities.calls import tools
from orga.activities.calls.tools import AbandonedCall, run_within_limit
from orga.activities.ports import ToolError
from orga.workflows.types.tool_calls.tools import REPORT_S, TIME_LIMIT, ToolSpec
from tests.support.tools.activities import Beats
from tests.support.values.core import a_spec

Work = Callable[[], Coroutine[Any, Any, str]]


async def limited(work: Work, limit_s: float | None = 1.0, spec: ToolSpec | None = None) -> str:
    """Run `work` as an attempt with a limit."""
    limit = None if limit_s is None else timedelta(seconds=limit_s + REPORT_S)
    return await in_attempt(Beats(start_to_close_timeout=limit).environment, work, spec)


async def in_attempt(
    environment: ActivityEnvironment, work: Work, spec: ToolSpec | None = None, *, is_awaited: bool = False
) -> str:
    async def attempt() -> str:
        return await run_within_limit(work(), spec or a_spec("look"), is_awaited=is_awaited)

    return await environment.run(attempt)


async def quick() -> str:
    return "ok"


async def slow() -> str:
    await asyncio.sleep(60)
    return "never"


@pytest.mark.parametrize("limit_s", [pytest.param(1.0, id="in time"), pytest.param(None, id="no limit")])
async def test_a_call_within_its_time_is_not_changed(limit_s: float | None) -> None:
    assert await limited(quick, limit_s) == "ok"


async def test_a_timeout_error_of_the_tool_itself_is_kept() -> None:
    async def fails() -> str:
        raise TimeoutError("the database")

    with pytest.raises(TimeoutError, match="the database"):
        await limited(fails)


@pytest.mark.parametrize(
    ("isolation", "kind", "advice"),
    [
        pytest.param(None, ToolError, "", id="awaited"),
        pytest.param("process", ToolError, "", id="in a process"),
        pytest.param(
            "thread",
            AbandonedCall,
            " and its thread cannot be stopped; declare it blocking: @tool(blocking=True)",
            id="in a thread, with advice",
        ),
    ],
)
async def test_a_call_over_its_time_fails_before_the_server_times_out(
    isolation: Any, kind: type[ToolError], advice: str
) -> None:
    async with asyncio.timeout(5):
        with pytest.raises(ToolError) as caught:
            await limited(slow, 0.5, a_spec("look", isolation=isolation))
    assert (str(caught.value), caught.value.kind) == (f"look took longer than its 0.5 s{advice}", TIME_LIMIT)
    assert (caught.value.retryable, type(caught.value)) == (True, kind)


@pytest.mark.parametrize("limit_s", [0.001, 0.5, 2.0, 30.0])
async def test_a_call_has_all_of_its_time_and_is_reported_before_the_server_times_out(
    limit_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits: list[float] = []
    wait = asyncio.wait

    async def noted(tasks: Any, timeout: float) -> Any:
        waits.append(timeout)
        return await wait(tasks, timeout=0)

    monkeypatch.setattr(tools.asyncio, "wait", noted)
    with pytest.raises(ToolError):
        await limited(slow, limit_s)
    assert waits[0] == pytest.approx(limit_s)
    assert sum(waits) < limit_s + REPORT_S


async def test_a_cancelled_tool_can_end_with_a_result() -> None:
    """A tool may answer an abort with a result or with its own error."""
    environment, running = Beats().environment, asyncio.Event()

    async def ends_well() -> str:
        running.set()
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            return "partial"
        return "never"

    call = asyncio.create_task(in_attempt(environment, ends_well))
    await running.wait()
    environment.cancel()
    assert await call == "partial"


async def test_a_tool_that_ignores_cancellation_is_given_up(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(tools, "ENDING_S", 0.1)
    environment, running, let_go = Beats().environment, asyncio.Event(), asyncio.Event()

    async def ignores() -> str:
        running.set()
        while not let_go.is_set():
            try:
                await let_go.wait()
            except asyncio.CancelledError:
                continue
        raise OSError("late, and nobody's business")

    call = asyncio.create_task(in_attempt(environment, ignores))
    await running.wait()
    environment.cancel()
    try:
        with pytest.raises(asyncio.CancelledError):
            await call
        assert "look ignored its cancellation and is still running" in caplog.text
    finally:
        let_go.set()
    while tools._abandoned_calls:
        await asyncio.sleep(0)


@pytest.mark.parametrize("isolation", [pytest.param(None, id="awaited"), pytest.param("thread", id="in a thread")])
async def test_an_awaited_call_has_time_to_end(isolation: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A thread is not even cancelled, because it would continue after its end was reported."""
    monkeypatch.setattr(tools, "ENDING_S", 0.0)
    environment, running, let_go = Beats().environment, asyncio.Event(), asyncio.Event()
    reported = list[bool]()

    async def ends_late() -> str:
        running.set()
        while not let_go.is_set():
            try:
                await let_go.wait()
            except asyncio.CancelledError:
                reported.append(True)
        return "late"

    call = asyncio.create_task(in_attempt(environment, ends_late, a_spec("look", isolation=isolation), is_awaited=True))
    await running.wait()
    environment.cancel()
    asyncio.get_running_loop().call_later(0.2, let_go.set)
    assert (await call, reported) == ("late", [] if isolation else [True])


async def test_a_stopping_worker_does_not_wait_for_an_awaited_call(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tools, "REPORT_S", 0.1)
    environment, running, let_go = Beats().environment, asyncio.Event(), asyncio.Event()

    async def ignores() -> str:
        running.set()
        while not let_go.is_set():
            with suppress(asyncio.CancelledError):
                await let_go.wait()
        return "late"

    call = asyncio.create_task(in_attempt(environment, ignores, is_awaited=True))
    await running.wait()
    environment.cancel()
    asyncio.get_running_loop().call_later(0.1, environment.worker_shutdown)
    try:
        async with asyncio.timeout(5):
            with pytest.raises(asyncio.CancelledError):
                await call
    finally:
        let_go.set()
    while tools._abandoned_calls:
        await asyncio.sleep(0)
