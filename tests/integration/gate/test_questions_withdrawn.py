"""A run that continues as new while it waits repeats only the questions that the current policy still needs.

A question left open would stop the run's clock, and with it the deadline, for the rest of the run.
"""

from dataclasses import dataclass

import pytest
from temporalio.client import Client

from orga.testing import FakeTool, answers, calls
from orga.workflows.types.tool_calls.gate import GateRequest, Verdict
from tests.support.hold import wait_until
from tests.support.runs.approvals import Asks, approval_argument, wait_for_held_calls
from tests.support.runs.loop import a_loop
from tests.support.runs.questions import SHORT, send_update, steer_until_continued, tool_results_in, wait_for_question
from tests.support.values.policies import a_verdict


@dataclass
class Reloaded(Asks):
    """Requires approval of these tools until its rules change: then it allows or denies them."""

    allows: bool | None = None

    async def judge(self, proposal: GateRequest) -> Verdict:
        """Decide by the current rules."""
        if self.allows is None:
            return await super().judge(proposal)
        return a_verdict(self.allows or proposal.call is None, "forbidden since noon", version="v2")


@pytest.mark.parametrize("allows", [True, False], ids=["allowed", "forbidden"])
async def test_the_question_is_withdrawn_if_the_call_needs_no_approval_any_more(client: Client, allows: bool) -> None:
    pay, engine = FakeTool("pay", effect="irreversible"), Reloaded()
    async with a_loop(client, [calls("pay"), answers("done")], pay, engine=engine, setup=SHORT) as loop:
        handle = await loop.start()
        await wait_for_held_calls(handle)
        engine.allows = allows
        await steer_until_continued(handle)
        ran = await loop.ended(handle)
        status = await handle.query("status")
    assert (status["waiting"], status["pending_approvals"], len(pay.contexts)) == ([], [], int(allows))
    resolved = [entry.data for entry in ran.journal if entry.event == "ApprovalResolved"]
    assert [(each["id"], each["choice"]) for each in resolved] == [("approval-1", "none")]


async def test_a_call_held_by_new_rules_is_asked_about_under_those_only(client: Client) -> None:
    pay, engine = FakeTool("pay", effect="irreversible"), Asks()
    async with a_loop(client, [calls("pay"), answers("done")], pay, engine=engine, setup=SHORT) as loop:
        handle = await loop.start()
        [before] = await wait_for_held_calls(handle)
        engine.version = "v2"
        await steer_until_continued(handle)
        [after] = await wait_for_held_calls(handle)
        assert (after["version"], after["approval_id"] != before["approval_id"]) == ("v2", True)
        await send_update(handle, "approve", approval_argument(after))
        await loop.ended(handle)
    assert len(pay.contexts) == 1


async def test_one_of_two_calls_that_needs_no_approval_any_more_is_withdrawn(client: Client) -> None:
    pay, fee = (FakeTool(name, effect="irreversible") for name in ("pay", "fee"))
    engine = Asks(tools=("pay", "fee"))
    async with a_loop(client, [calls("pay", "fee"), answers("done")], pay, fee, engine=engine, setup=SHORT) as loop:
        handle = await loop.start()
        held, _ = await wait_for_held_calls(handle, 2)
        engine.tools = ("pay",)
        await steer_until_continued(handle)
        assert await wait_for_held_calls(handle) == [held]
        assert [call["tool"] for call in (await wait_for_question(handle))["data"]["calls"]] == ["pay"]
        await send_update(handle, "approve", approval_argument(held))
        await loop.ended(handle)
        assert (await handle.query("status"))["pending_approvals"] == []
    assert (len(pay.contexts), len(fee.contexts)) == (1, 1)


async def test_a_budget_question_for_calls_that_are_now_forbidden_is_withdrawn(client: Client) -> None:
    look, engine = FakeTool("look"), Reloaded(tools=())
    async with a_loop(client, [calls("look")] * 2 + [answers("done")], look, engine=engine, setup=SHORT) as loop:
        handle = await loop.start(max_tool_calls=1, on_exhausted="ask")
        await wait_for_question(handle)
        engine.allows = False
        await steer_until_continued(handle)
        await loop.ended(handle)
        assert (await handle.query("status"))["waiting"] == []
    assert tool_results_in(loop, 2)[-1] == "[Policy denied] forbidden since noon"


async def test_a_person_who_denied_a_call_is_not_asked_again(client: Client) -> None:
    pay, look = FakeTool("pay", effect="irreversible"), FakeTool("look")
    steps = [calls("look"), calls("pay", "look"), answers("done")]
    async with a_loop(client, steps, pay, look, engine=Asks(), setup=SHORT) as loop:
        handle = await loop.start(max_tool_calls=1, on_exhausted="ask")
        [held] = await wait_for_held_calls(handle)
        await send_update(handle, "deny", approval_argument(held))

        async def asks_for_budget() -> bool:
            return [wait["kind"] for wait in (await handle.query("status"))["waiting"]] == ["budget"]

        await wait_until(asks_for_budget)
        for _ in range(30):
            await handle.signal("steer", "a note")
            await handle.query("status")
        assert await asks_for_budget()
        await send_update(handle, "extend_budget", {"max_tool_calls": 9})
        await loop.ended(handle)
    assert (len(pay.contexts), len(look.contexts)) == (0, 2)
