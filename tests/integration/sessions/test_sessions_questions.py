"""Once a turn is interrupted, its questions to people are closed everywhere."""

import asyncio
from typing import Any

import pytest
from temporalio.client import Client

from orga.client.errors import Refused
from orga.client.runs.inbox import inbox
from orga.client.server.search_attributes import register_missing
from orga.testing import FakeTool, ScriptedModel, answers, calls
from orga.workflows.types.names import PHASE, WAITING, WAITING_SINCE
from tests.support.hold import wait_until
from tests.support.runs.approvals import Asks, wait_for_held_calls
from tests.support.runs.loop import WORKER_FACTS, a_loop
from tests.support.runs.questions import steer_until_continued
from tests.support.runs.sessions import begin, close_session, session_status, turn_summary

KNOWN = WORKER_FACTS.model_copy(update={"search_attributes": True, "roll_over_events": 60})


@pytest.mark.parametrize(
    ("has_rolled_over", "is_paused"),
    [
        pytest.param(False, False, id="in the segment that asked"),
        pytest.param(True, False, id="in the next segment"),
        pytest.param(True, True, id="in the next segment, which is paused"),
    ],
)
async def test_an_approval_is_withdrawn_everywhere(client: Client, has_rolled_over: bool, is_paused: bool) -> None:
    await register_missing(client)
    pay, model = FakeTool("pay", effect="irreversible"), ScriptedModel([calls("pay"), answers("two")])
    async with a_loop(client, model, pay, engine=Asks(), setup=KNOWN) as loop:
        session = await begin(loop)
        handle = client.get_workflow_handle(session.id)

        async def listed() -> list[str]:
            return [entry.kind async for entry in inbox(client) if entry.run_id == session.id]

        async def shown() -> tuple[Any, ...]:
            found = (await handle.describe()).typed_search_attributes
            return found.get(WAITING), found.get(WAITING_SINCE), found.get(PHASE)

        first = asyncio.create_task(session.send("pay"))
        [held] = await wait_for_held_calls(handle)
        if is_paused:
            await session.pause()
        if has_rolled_over:
            await steer_until_continued(handle)
            assert await wait_for_held_calls(handle) == [held]

        async def is_listed() -> bool:
            return await listed() == ["approval"]

        await wait_until(is_listed)
        await session.interrupt("not now")
        assert turn_summary(await first) == (1, "", "interrupted")

        phase = "paused" if is_paused else "idle"
        status = await session_status(session)
        assert (status.waiting, status.pending_approvals, status.phase) == ([], [], phase)
        assert await shown() == (None, None, phase)
        assert await listed() == []
        for decide in (session.approve, session.deny):
            with pytest.raises(Refused, match=f"no approval is pending under '{held['approval_id']}'; pending: none"):
                await decide(held["approval_id"], by="ada")
        await session.resume()
        assert turn_summary(await session.send("and now?")) == (2, "two", "completed")
        last = await close_session(session)
    resolved = [entry.data for entry in last.journal if entry.event == "ApprovalResolved"]
    assert [(each["kind"], each.get("choice")) for each in resolved] == [("approval", "none")]
    assert not pay.contexts
    assert model.seen[-1].messages[2].text.startswith("[Not run]")
