"""Threads are separated by kind of work, so that no kind blocks another, least of all the gate."""

import asyncio
import threading
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from contextvars import ContextVar
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from orga.activities.adapters.policy.cedar import CedarPolicies
from orga.activities.adapters.policy.engines import ListedTools
from orga.activities.adapters.schemas import arguments
from orga.activities.adapters.schemas.arguments import find_argument_errors
from orga.activities.adapters.threads import Threads
from orga.activities.adapters.tools.file_search import SearchText
from orga.activities.adapters.tools.guarded_http import system_addresses
from orga.activities.adapters.tools.read_file import ReadFile
from orga.activities.adapters.tools.root import WALK_THREADS, FileRoot
from orga.activities.gate.gate import GateActivities
from orga.workflows.types.tool_calls.gate import GateRequest
from tests.support.tools.activities import Beats
from tests.support.tools.calls import result
from tests.support.values.core import a_call, a_spec
from tests.support.values.policies import PERMIT_ALL, a_folder, a_tool_proposal

PLAIN = {"type": "object", "properties": {"path": {"type": "string"}}}
COSTLY = {"type": "object", "properties": {"path": {"type": "string", "pattern": "^a"}}}
"""A schema with keywords that are checked in a process of their own."""

MORE_THAN_ANY_POOL = 100
PATIENCE_S = 60
WHO: ContextVar[str] = ContextVar("WHO", default="nobody")


@pytest.fixture(name="end")
def an_end() -> Generator[threading.Event]:
    """An event that always releases the blocked threads at the end of a test."""
    end = threading.Event()
    try:
        yield end
    finally:
        end.set()


@asynccontextmanager
async def with_all_threads_of_the_loop_held(end: threading.Event) -> AsyncGenerator[None]:
    """Block the threads of `asyncio.to_thread`, as tools on slow disks or slow name servers do."""
    loop = asyncio.get_running_loop()
    loop.set_default_executor(ThreadPoolExecutor(1))
    held = loop.run_in_executor(None, end.wait)
    try:
        async with asyncio.timeout(PATIENCE_S):
            yield
    finally:
        end.set()
        await held


async def decided(schema: dict[str, Any]) -> str:
    request = GateRequest(
        agent="a",
        iteration=1,
        offered=("read",),
        calls=(a_call("read", path="a"),),
        specs=(a_spec("read", parameters=schema),),
    )
    given = await Beats().run(GateActivities(ListedTools(), find_argument_errors).gate, request)
    return given.verdicts[0].decision


async def _judged_by_cedar(folder: Path) -> str:
    times = count(step=10)
    engine = CedarPolicies(a_folder(folder, all=PERMIT_ALL), clock=lambda: next(times))
    return "allow" if (await engine.judge(a_tool_proposal())).decision != "deny" else "deny"


async def _resolved(folder: Path) -> str:
    return "".join(await system_addresses("127.0.0.1", 80))


WORK: dict[str, tuple[Callable[[Path], Awaitable[str]], str]] = {
    "the gate": (lambda folder: decided(PLAIN), "allow"),
    "the gate, in a process": (lambda folder: decided(COSTLY), "allow"),
    "policies": (_judged_by_cedar, "allow"),
    "a search": (lambda folder: result(SearchText(FileRoot(folder)), query="needle"), "f.txt:1: needle"),
    "a file": (lambda folder: result(ReadFile(FileRoot(folder)), path="f.txt"), "f.txt (lines 1-1 of 1)\n1\tneedle"),
    "a name": (_resolved, "127.0.0.1"),
}


@pytest.mark.parametrize(("work", "expected"), WORK.values(), ids=WORK)
async def test_it_needs_no_thread_of_the_loop(
    work: Callable[[Path], Awaitable[str]], expected: str, tmp_path: Path, end: threading.Event
) -> None:
    (tmp_path / "f.txt").write_text("needle\n")
    async with with_all_threads_of_the_loop_held(end):
        assert await work(tmp_path) == expected


async def test_a_plain_schema_never_waits_for_costly_ones(
    monkeypatch: pytest.MonkeyPatch, end: threading.Event
) -> None:
    """The verdict on a call is in time, even if many calls of other runs wait for a hostile server's schema."""

    def held(schema: str, value: bytes) -> list[str]:
        end.wait()
        return []

    monkeypatch.setattr(arguments, "check_in_process", held)
    costly = [asyncio.create_task(find_argument_errors(COSTLY, {"path": "a"})) for _ in range(MORE_THAN_ANY_POOL)]
    async with asyncio.timeout(PATIENCE_S):
        assert await decided(PLAIN) == "allow"
    assert not any(each.done() for each in costly)
    end.set()
    await asyncio.gather(*costly)


async def test_a_file_is_read_although_searches_block_all_their_threads(tmp_path: Path, end: threading.Event) -> None:
    (tmp_path / "f.txt").write_text("a\n")
    searches = [asyncio.create_task(WALK_THREADS.run(end.wait)) for _ in range(MORE_THAN_ANY_POOL)]
    async with asyncio.timeout(PATIENCE_S):
        assert "1\ta" in await result(ReadFile(FileRoot(tmp_path)), path="f.txt")
    assert not any(each.done() for each in searches)
    end.set()
    await asyncio.gather(*searches)


async def test_results_errors_and_the_context_are_passed_on() -> None:
    WHO.set("me")
    threads = Threads("subject", 1)
    assert await threads.run(lambda: (WHO.get(), threading.current_thread().name)) == ("me", "subject_0")
    with pytest.raises(ValueError, match="invalid literal"):
        await threads.run(int, "seven")


async def test_a_cancelled_call_that_has_not_started_is_never_run(end: threading.Event) -> None:
    threads, done = Threads("subject", 1), list[int]()
    begun = asyncio.create_task(threads.run(end.wait))
    waiting = asyncio.create_task(threads.run(done.append, 1))
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    end.set()
    await begun
    await threads.run(done.append, 2)
    assert done == [2]
