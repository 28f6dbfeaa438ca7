"""More clients wait for a turn than updates allow: the others poll for its end, and for that of the session."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from temporalio.client import Client

from orga.client.errors import OrgaError, RunFailed, RunNotFound
from orga.client.runs.sessions import SessionHandle
from orga.testing import answers
from orga.workflows.types.sessions.session_result import TurnResult
from tests.support.hold import Hold, wait_until
from tests.support.runs.loop import a_loop
from tests.support.runs.sessions import begin, close_session, turn_summary

WAITERS, CROWDED = 9, 3
SOON_S = 10.0
"""Seconds. Far less than the 30 after which an update is sent again."""


class Looking(SessionHandle):
    """A session handle that counts its polls."""

    looks = 0

    async def _poll_until_ended(self, turn: int, within_s: float) -> None:
        self.looks += 1
        await super()._poll_until_ended(turn, within_s)


Waiting = tuple[Looking, list[asyncio.Task[TurnResult]], Hold]


@asynccontextmanager
async def a_crowd(client: Client) -> AsyncGenerator[Waiting]:
    """Yield a session whose first turn blocks, and the clients that wait for it."""
    hold = Hold()
    async with a_loop(client, [hold.step(answers("one"))]) as loop:
        session = Looking(client, (await begin(loop)).id)
        await session.post("first")
        await hold.reached()
        waiting = [asyncio.create_task(session.result_of(1)) for _ in range(WAITERS)]

        async def is_crowded() -> bool:
            return session.looks == CROWDED

        await wait_until(is_crowded)
        yield session, waiting, hold


async def test_each_client_soon_gets_the_result(client: Client) -> None:
    async with a_crowd(client) as (session, waiting, hold):
        hold.go.set()
        async with asyncio.timeout(SOON_S):
            found = await asyncio.gather(*waiting)
        assert {turn_summary(each) for each in found} == {(1, "one", "completed")}
        assert session.looks == CROWDED
        await close_session(session)


async def test_each_client_soon_learns_that_the_session_was_terminated(client: Client) -> None:
    async with a_crowd(client) as (session, waiting, _):
        await client.get_workflow_handle(session.id).terminate("by the operator")
        async with asyncio.timeout(SOON_S):
            found = await asyncio.gather(*waiting, return_exceptions=True)
    assert [type(each) for each in found] == [RunFailed] * WAITERS


async def test_each_client_learns_at_once_that_there_is_no_such_session(client: Client) -> None:
    """An example is a namespace whose retention time is over."""
    session = SessionHandle(client, "session-gone")
    with pytest.raises(RunNotFound):
        async with asyncio.timeout(SOON_S):
            await session._poll_until_ended(1, 30.0)


async def test_a_session_that_cannot_be_polled_is_polled_again(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker or a server that is away for a while is not the end of a session."""
    async with a_crowd(client) as (session, waiting, hold):
        reported = list[str]()

        async def away(*_: Any) -> Any:
            reported.append("away")
            monkeypatch.undo()
            raise OrgaError("the Temporal server answered unavailable")

        monkeypatch.setattr(session, "turns", away)

        async def was_polled_again() -> bool:
            return bool(reported)

        await wait_until(was_polled_again)
        hold.go.set()
        assert {turn_summary(each) for each in await asyncio.gather(*waiting)} == {(1, "one", "completed")}
        await close_session(session)
