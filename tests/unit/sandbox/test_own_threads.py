"""Each call has its own thread, so that one that never ends does not block others."""

import asyncio
import threading
from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar

import pytest

from orga.activities.adapters.threads import MAX_ABANDONED_THREADS, OwnThreads
from orga.activities.ports import ToolError

WHO: ContextVar[str] = ContextVar("WHO", default="nobody")


@contextmanager
def a_gate() -> Generator[threading.Event]:
    """An event that is always set at the end, so that no thread outlives its test."""
    gate = threading.Event()
    try:
        yield gate
    finally:
        gate.set()


async def cut_off(threads: OwnThreads[bool], gate: threading.Event) -> None:
    call = asyncio.create_task(threads.run(gate.wait))
    await asyncio.sleep(0.01)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call


async def test_results_and_errors_are_passed_on() -> None:
    async def fails() -> None:
        await OwnThreads[None]("f").run(lambda: (_ for _ in ()).throw(KeyError("k")))

    assert await OwnThreads[int]("f").run(lambda: 7) == 7
    with pytest.raises(KeyError):
        await fails()


async def test_a_call_has_its_context_and_a_daemon_thread() -> None:
    WHO.set("me")
    seen = await OwnThreads[tuple[str, str, bool]]("look").run(
        lambda: (WHO.get(), threading.current_thread().name, threading.current_thread().daemon)
    )
    assert seen == ("me", "tool look", True)


async def test_more_calls_than_any_pool_has_threads_run_concurrently() -> None:
    together = threading.Barrier(64, timeout=20)
    threads = OwnThreads[int]("f")
    assert len(await asyncio.gather(*(threads.run(together.wait) for _ in range(64)))) == 64


async def test_an_abandoned_thread_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    with a_gate() as gate:
        await cut_off(OwnThreads[bool]("look"), gate)
    assert "look: its thread goes on after the call was cut off, and cannot be stopped" in caplog.text
    assert 'isolation = "process" under [tools.options.look]' in caplog.text


async def test_too_many_abandoned_threads_refuse_calls_until_they_end() -> None:
    threads = OwnThreads[bool]("look")
    with a_gate() as gate:
        for _ in range(MAX_ABANDONED_THREADS):
            await cut_off(threads, gate)
        with pytest.raises(ToolError, match=f"{MAX_ABANDONED_THREADS} earlier calls of look still block") as caught:
            await threads.run(gate.wait)
        assert (caught.value.kind, caught.value.retryable) == ("ThreadsLeftBehind", True)
        assert await OwnThreads[int]("other").run(lambda: 1) == 1, "other functions still run"
    async with asyncio.timeout(20):
        while True:
            try:
                assert await threads.run(gate.wait)
            except ToolError:
                await asyncio.sleep(0.01)
            else:
                return
