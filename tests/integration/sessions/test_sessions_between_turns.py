"""A session between two turns: what it shows, what it refuses, and how it is paused."""

from datetime import timedelta

import pytest
from temporalio.client import Client, WorkflowExecutionStatus

from orga.activities.ports import ToolError
from orga.client.errors import Refused
from orga.client.server.search_attributes import register_missing
from orga.testing import FakeTool, ScriptedModel, answers, calls
from orga.workflows.types.names import COST_USD
from orga.workflows.types.tool_calls.recovery import Recovery
from orga.workflows.types.tool_calls.tools import ToolOptions
from tests.support.parts.time_skipping import time_skipping
from tests.support.runs.loop import WORKER_FACTS, a_loop
from tests.support.runs.sessions import (
    begin,
    close_session,
    session_status,
    turn_summary,
    wait_for_session,
    wait_for_status,
)

KNOWN = WORKER_FACTS.model_copy(update={"search_attributes": True})


async def test_the_cost_of_a_session_is_that_of_all_turns(client: Client) -> None:
    await register_missing(client)
    model = ScriptedModel([answers(f"{n}", cost_usd=0.25) for n in range(3)])
    async with a_loop(client, model, setup=KNOWN) as loop:
        session = await begin(loop)
        shown = list[float | None]()
        for text in ("first", "second", "third"):
            await session.send(text)
            shown.append((await session.describe()).typed_search_attributes.get(COST_USD))
        await close_session(session)
        shown.append((await session.describe()).typed_search_attributes.get(COST_USD))
    assert shown == [0.25, 0.5, 0.75, 0.75]


async def test_a_dead_letter_is_requeued_only_within_a_turn(client: Client) -> None:
    body = [ToolError("down", retryable=False), "sent"]
    options = ToolOptions(recovery=Recovery(strategy="dead_letter", max_attempts=1))
    mail = FakeTool("mail", body, effect="irreversible", options=options)
    model = ScriptedModel([calls("mail"), answers("one"), answers("two")])
    async with a_loop(client, model, mail) as loop:
        session = await begin(loop)
        await session.send("mail it")
        [letter] = (await session_status(session)).dead_letters
        with pytest.raises(Refused, match="no turn is running that could send it again; send a message first"):
            await session.requeue(letter.letter_id)
        assert [each.requeued for each in (await session_status(session)).dead_letters] == [False]
        assert turn_summary(await session.send("thanks")) == (2, "two", "completed")
        await close_session(session)
    assert len(mail.calls) == 1


async def test_a_paused_session_can_be_closed(client: Client) -> None:
    async with a_loop(client, [answers("one")]) as loop:
        session = await begin(loop)
        await session.send("first")
        await session.pause()
        await wait_for_status(session, lambda status: status.phase == "paused")
        last = await close_session(session)
    assert last.result.termination.detail == "closed"


async def test_a_pause_does_not_count_as_idle_and_messages_wait() -> None:
    """The time of `idle_timeout_s` starts again with the resume."""
    async with time_skipping() as environment, a_loop(environment.client, [answers("one"), answers("two")]) as loop:
        session = await begin(loop, idle_timeout_s=60.0)
        assert turn_summary(await session.send("first")) == (1, "one", "completed")
        await environment.sleep(timedelta(seconds=40))
        await session.pause()
        await wait_for_status(session, lambda status: status.phase == "paused")
        await environment.sleep(timedelta(hours=1))
        assert await session.post("second") == 2
        assert (await session_status(session)).turn == 0
        await session.resume()
        assert turn_summary(await session.result_of(2)) == (2, "two", "completed")
        await session.pause()
        await environment.sleep(timedelta(hours=1))
        await session.resume()
        await environment.sleep(timedelta(seconds=50))
        assert (await session.describe()).status == WorkflowExecutionStatus.RUNNING
        await environment.sleep(timedelta(seconds=20))
        last = await wait_for_session(session)
    assert last.result.termination.detail == "no message came for 60 s"
