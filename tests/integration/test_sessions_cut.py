"""A turn that is cut while a call ignores it: the call is waited for, and what came of it is told truly."""

import asyncio
import threading
import time
from collections.abc import Generator
from contextlib import suppress
from typing import Any

import pytest
from temporalio.client import Client

from orga.activities import time_limit
from orga.activities.adapters.tools.python_function import PythonFunction
from orga.activities.ports import ModelRequest, Tool, ToolContext, ToolError
from orga.client.proof.verify import verify
from orga.testing import FakeTool, ScriptedModel, answers, calls
from orga.workflows.phases.control import run
from orga.workflows.types.messages import Reply
from tests.support.hold import PATIENCE_S, happens, until
from tests.support.runs.loop import a_loop
from tests.support.runs.sessions import Talked, begin, closed, ended, how, stands
from tests.support.runs.unsandboxed import unsandboxed

MORE_S = 1.5
"""For which a call goes on that was cut: the worker hears of that within half a second."""


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> Generator[None]:
    """Let a run and its worker give up soon on what ignores its cancellation."""
    monkeypatch.setattr(run, "CANCEL_GRACE_S", 0.2)
    monkeypatch.setattr(time_limit, "ENDING_S", 0.1)
    with unsandboxed():
        yield


class Stubborn:
    """A call that goes on though it was cut, and has its effect then."""

    def __init__(self, comes_to: str | Exception = "booked") -> None:
        self.comes_to = comes_to
        self.entered, self.cut = threading.Event(), threading.Event()
        self.has_ended = False

    def in_a_thread(self) -> Tool:
        def book() -> str:
            """Book it."""
            self.entered.set()
            self.cut.wait(PATIENCE_S)
            time.sleep(MORE_S)
            return self._ended()

        return PythonFunction(book)

    def awaited(self) -> Tool:
        async def book(_: dict[str, Any], __: ToolContext) -> str:
            self.entered.set()
            await self._ignoring(asyncio.to_thread(self.cut.wait, PATIENCE_S))
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


async def cut(client: Client, tool: Tool, stubborn: Stubborn) -> tuple[ScriptedModel, Talked, list[bool]]:
    """Return what the outside sees of a session whose first turn was cut, and what had ended when the next began."""
    had_ended = list[bool]()

    def other(_: ModelRequest) -> Reply:
        had_ended.append(stubborn.has_ended)
        return answers("other")

    model = ScriptedModel([calls("book"), other])
    async with a_loop(client, model, tool) as loop:
        session = await begin(loop)
        first = asyncio.create_task(session.send("book it"))
        await asyncio.to_thread(stubborn.entered.wait, PATIENCE_S)
        turn = await session.post("something else", when_busy="interrupt")
        stubborn.cut.set()
        assert how(await first) == (1, "", "interrupted")
        assert how(await session.result_of(turn)) == (2, "other", "completed")
        last = await closed(session)
        found = await verify(client, session.id, exported=last.journal)
        assert found.ok, [check for check in found.checks if not check.ok]
        return model, last, had_ended


def outcomes(last: Talked) -> list[str]:
    return [each["outcome"] for e in last.journal if e.event == "ObservationsCollected" for each in e.data["outcomes"]]


@pytest.mark.parametrize("where", ["awaited", "in_a_thread"])
async def test_the_next_turn_begins_once_the_call_has_ended_and_its_model_reads_what_came_of_it(
    client: Client, where: str
) -> None:
    stubborn = Stubborn()
    model, last, had_ended = await cut(client, getattr(stubborn, where)(), stubborn)
    assert had_ended == [True]
    assert [m.text for m in model.seen[-1].messages] == ["book it", "", "booked", "something else"]
    assert (outcomes(last), last.events.index("ObservationsCollected") < last.events.index("TurnEnded")) == (
        ["ok"],
        True,
    )
    assert (last.result.tool_calls.run, last.result.tool_calls.failed) == (1, 0)


async def test_a_call_that_fails_in_the_end_is_told_as_failed(client: Client) -> None:
    stubborn = Stubborn(ToolError("sold out", acted="no"))
    model, last, had_ended = await cut(client, stubborn.awaited(), stubborn)
    assert (had_ended, outcomes(last)) == ([True], ["failed"])
    assert model.seen[-1].messages[2].text == "[Error] ToolError: sold out"


async def test_a_call_that_never_ends_holds_the_next_turn_for_its_time_limit_alone(client: Client) -> None:
    entered, let_go = asyncio.Event(), asyncio.Event()

    async def hang(_: dict[str, Any], __: ToolContext) -> str:
        while not let_go.is_set():
            entered.set()
            with suppress(asyncio.CancelledError):
                await let_go.wait()
        return "late"

    model = ScriptedModel([calls("hang"), answers("other")])
    try:
        async with a_loop(client, model, FakeTool("hang", hang, effect="irreversible")) as loop:
            session = await begin(loop, tool_timeout_s=MORE_S)
            first = asyncio.create_task(session.send("hang"))
            await happens(entered)
            began = time.monotonic()
            assert how(await session.send("something else", when_busy="interrupt")) == (2, "other", "completed")
            assert time.monotonic() - began > MORE_S / 2
            assert how(await first) == (1, "", "interrupted")
            last = await closed(session)
    finally:
        let_go.set()
    assert outcomes(last) == ["cancelled"]
    assert "the outcome is unknown" in model.seen[-1].messages[2].text


async def test_an_abort_of_the_session_waits_for_no_such_call(client: Client) -> None:
    """Nor does a worker that is stopped."""
    stubborn = Stubborn()
    try:
        async with a_loop(client, [calls("book")], stubborn.awaited()) as loop:
            session = await begin(loop, tool_timeout_s=2 * PATIENCE_S)
            await session.post("book it")
            await asyncio.to_thread(stubborn.entered.wait, PATIENCE_S)
            await session.interrupt()
            await session.abort("enough")
            last = await ended(session)
            assert not stubborn.has_ended
    finally:
        stubborn.cut.set()
    assert (last.result.termination.reason, last.result.latest[0].termination.reason) == ("aborted", "interrupted")


async def test_an_answer_whose_turn_waits_for_a_late_lookup_gives_way_to_guidance(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The lookup was not there in time, and ignores that; the next turn must not begin beside it."""
    monkeypatch.setattr(time_limit, "ENDING_S", PATIENCE_S)
    stubborn = Stubborn("the page")
    fetch = FakeTool("fetch_url", stubborn.awaited().call, parameters={"type": "object", "required": ["url"]})
    model = ScriptedModel([answers("too early"), answers("as guided"), answers("two")])
    async with a_loop(client, model, fetch) as loop:
        session = await begin(loop, pre_hydration={"timeout_s": 0.5})
        assert (await session.post("read https://a.io"), await session.post("second")) == (1, 2)

        async def is_answered() -> bool:
            return any(message.text == "too early" for message in await session.conversation())

        await until(is_answered)
        assert ((await stands(session)).turn, await session.post("shorter", when_busy="steer")) == (1, 1)
        stubborn.cut.set()
        found = [how(await session.result_of(turn)) for turn in (1, 2)]
        await closed(session)
    assert found == [(1, "as guided", "completed"), (2, "two", "completed")]
