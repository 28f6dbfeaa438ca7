"""Features that sessions share with other runs: approvals, journal, verification and long waits."""

import asyncio
from datetime import timedelta

import pytest
from temporalio.client import Client

from orga.client.errors import NotAnAgent
from orga.client.past.fork import fork
from orga.client.past.rewind import rewind
from orga.client.proof.verify import verify
from orga.testing import FakeTool, ScriptedModel, answers, calls
from tests.support.parts.time_skipping import time_skipping
from tests.support.runs.approvals import Asks, wait_for_held_calls
from tests.support.runs.loop import a_loop
from tests.support.runs.sessions import begin, close_session, turn_summary


async def test_an_approval_waits_in_a_turn_and_the_session_verifies(client: Client) -> None:
    pay = FakeTool("pay", effect="irreversible")
    model = ScriptedModel([answers("hello"), calls("pay", amount=1), answers("paid")])
    async with a_loop(client, model, pay, engine=Asks()) as loop:
        session = await begin(loop)
        await session.send("hi")
        second = asyncio.create_task(session.send("pay"))
        [held] = await wait_for_held_calls(client.get_workflow_handle(session.id))
        await session.approve(held["approval_id"], by="ada")
        assert turn_summary(await second) == (2, "paid", "completed")
        last = await close_session(session)
        found = await verify(client, session.id, exported=last.journal)
        with pytest.raises(NotAnAgent, match="SessionWorkflow"):
            await rewind(client, session.id, 1)
        with pytest.raises(NotAnAgent, match="SessionWorkflow"):
            await fork(client, session.id, 1, task="more")
    assert found.ok, [check for check in found.checks if not check.ok]
    reported = [entry for entry in last.journal if entry.data.get("kind") != "call"]
    turns = [entry.event for entry in reported if entry.event in {"TurnStarted", "TurnEnded", "ApprovalResolved"}]
    assert turns == ["TurnStarted", "TurnEnded", "TurnStarted", "ApprovalResolved", "TurnEnded"]


async def test_after_three_days_the_model_reads_the_gap_and_the_wait_used_no_time() -> None:
    """No timer is set in between: only the message that ends the wait adds to the history."""
    async with time_skipping() as environment:
        model = ScriptedModel([answers("one"), answers("two")])
        async with a_loop(environment.client, model) as loop:
            session = await begin(loop)
            await session.send("first")
            before = (await session.describe()).history_length
            await environment.sleep(timedelta(days=3))
            assert (await session.describe()).history_length == before
            second = await session.send("second")
            await session.close()
            await session.result()
    assert second.duration_s < 60
    assert [message.text for message in model.seen[-1].messages][-1] == "[3 days since your last answer] second"
