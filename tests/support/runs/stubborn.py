"""Tool calls that ignore their cancellation, and a session whose first turn is interrupted during one."""

import asyncio
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager, suppress
from typing import Any

import pytest

from orga.activities.adapters.tools.python_function import PythonFunction
from orga.activities.calls import tools
from orga.activities.ports import Tool, ToolContext
from orga.client.runs.sessions import SessionHandle
from orga.testing import FakeTool
from orga.workflows.phases.control import run
from tests.support.hold import PATIENCE_S, wait_for_event
from tests.support.runs.sessions import turn_summary

MORE_S = 1.5
"""Seconds that an interrupted call continues. The worker learns of the interruption within half a second."""

MOST_S = 10 * PATIENCE_S
"""Seconds that the call waits for its interruption."""


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make a run and its worker give up soon on a call that ignores its cancellation."""
    monkeypatch.setattr(run, "CANCEL_GRACE_S", 0.2)
    monkeypatch.setattr(tools, "ENDING_S", 0.1)


class Stubborn:
    """A call that continues after its interruption, and then has its effect."""

    def __init__(self, comes_to: str | Exception = "booked") -> None:
        self.comes_to = comes_to
        self.entered, self.cut = threading.Event(), threading.Event()
        self.has_ended = False

    async def reached(self) -> None:
        """Wait until the call is in flight."""
        assert await asyncio.to_thread(self.entered.wait, PATIENCE_S), "the call has not begun"

    def in_a_thread(self) -> Tool:
        def book() -> str:
            """Book it."""
            self.entered.set()
            self.cut.wait(MOST_S)
            time.sleep(MORE_S)
            return self._ended()

        return PythonFunction(book)

    def awaited(self) -> Tool:
        async def book(_: dict[str, Any], __: ToolContext) -> str:
            self.entered.set()
            await self._ignoring(asyncio.to_thread(self.cut.wait, MOST_S))
            await self._ignoring(asyncio.sleep(MORE_S))
            return self._ended()

        return FakeTool("book", book, effect="irreversible")

    @staticmethod
    async def _ignoring(work: Any) -> None:
        task = asyncio.ensure_future(work)
        while not task.done():
            try:
                await asyncio.shield(task)
            except asyncio.CancelledError:
                continue

    def _ended(self) -> str:
        self.has_ended = True
        if isinstance(self.comes_to, Exception):
            raise self.comes_to
        return self.comes_to


@contextmanager
def let_go(stubborn: Stubborn) -> Generator[None]:
    """Let the call end after the block, in any case."""
    try:
        yield
    finally:
        stubborn.cut.set()


async def cut_and_on(session: SessionHandle, stubborn: Stubborn) -> None:
    """Interrupt a session's first turn with a message during the call, and wait for this and the second turn."""
    first = asyncio.create_task(session.send("book it"))
    await stubborn.reached()
    turn = await session.post("something else", when_busy="interrupt")
    stubborn.cut.set()
    assert turn_summary(await first) == (1, "", "interrupted")
    assert turn_summary(await session.result_of(turn)) == (2, "other", "completed")


LIMIT_S = 4.0
"""Seconds that a hanging call may take."""


class Hanging:
    """A call that never ends by itself, even when it is interrupted."""

    def __init__(self) -> None:
        self.entered, self.let_go = asyncio.Event(), asyncio.Event()
        self._entered_at = 0.0

    def tool(self) -> Tool:
        async def hang(_: dict[str, Any], __: ToolContext) -> str:
            self._entered_at = time.monotonic()
            while not self.let_go.is_set():
                self.entered.set()
                with suppress(asyncio.CancelledError):
                    await self.let_go.wait()
            return "late"

        return FakeTool("hang", hang, effect="irreversible")

    async def cut_and_on(self, session: SessionHandle) -> None:
        """Interrupt a session's first turn during the call, and wait for its time limit and the second turn."""
        first = asyncio.create_task(session.send("hang"))
        await wait_for_event(self.entered)
        assert turn_summary(await session.send("something else", when_busy="interrupt")) == (2, "other", "completed")
        assert time.monotonic() - self._entered_at > LIMIT_S / 2
        assert turn_summary(await first) == (1, "", "interrupted")
