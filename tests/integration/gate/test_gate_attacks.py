"""Attacks on the gate, on a real server: a verdict that no history can hold does not block a run."""

from dataclasses import dataclass
from typing import Any

import pytest
from temporalio.client import Client, WorkflowHandle

from orga.activities.gate.gate import UNRECORDABLE
from orga.testing import FakeTool, answers, calls
from orga.workflows.types.tool_calls.gate import ApprovalTerms, GateRequest, Verdict
from tests.support.hold import Hold
from tests.support.runs.loop import WORKER_FACTS, a_loop
from tests.support.runs.questions import send_update, tool_results_in, wait_for_question
from tests.support.values.policies import a_verdict


async def the_held_call(handle: WorkflowHandle[Any, Any]) -> dict[str, Any]:
    """Return the one held call, once it waits."""
    await wait_for_question(handle)
    [question] = (await handle.query("status"))["pending_approvals"]
    return question


@dataclass
class Answers:
    """A policy engine that returns this verdict on tools."""

    is_embedded = True

    judgement: Verdict

    async def judge(self, proposal: GateRequest) -> Verdict:
        """Return the verdict."""
        return self.judgement if proposal.call else a_verdict(True)


async def test_a_call_that_may_wait_for_ever_can_be_approved(client: Client) -> None:
    pay = FakeTool("pay")
    engine = Answers(a_verdict(True, approval=ApprovalTerms(expires_s=float("inf"))))
    async with a_loop(client, [calls("pay"), answers()], pay, engine=engine) as loop:
        handle = await loop.start()
        question = await the_held_call(handle)
        await send_update(handle, "approve", {"approval_id": question["approval_id"], "approver": "ada"})
        await loop.ended(handle)
    assert len(pay.contexts) == 1


async def test_unrecordable_arguments_of_a_policy_are_a_denial(client: Client) -> None:
    pay = FakeTool("pay")
    engine = Answers(a_verdict(True, arguments={"a": "x" * 3_000_000}))
    async with a_loop(client, [calls("pay"), answers()], pay, engine=engine) as loop:
        await loop.run()
    assert (pay.contexts, tool_results_in(loop)) == ([], [f"[Policy denied] {UNRECORDABLE}"])


@dataclass
class Lowers:
    """A policy engine that lowers the amount and then requires an approval."""

    is_embedded = True

    async def judge(self, proposal: GateRequest) -> Verdict:
        """Lower the amount, then require an approval."""
        if proposal.call is None:
            return a_verdict(True)
        if proposal.call.arguments["amount"] > 5:
            return a_verdict(True, arguments={"amount": 5})
        return a_verdict(True, approval=ApprovalTerms())


@pytest.mark.parametrize("is_approved", [pytest.param(True, id="approved"), pytest.param(False, id="denied")])
async def test_the_model_learns_that_the_approved_call_differs_from_its_own(client: Client, is_approved: bool) -> None:
    paid: list[int] = []
    pay = FakeTool("pay", lambda arguments, _: paid.append(arguments["amount"]) or "paid")
    steps = [calls("pay", arguments={"amount": 9}), answers()]
    async with a_loop(client, steps, pay, engine=Lowers()) as loop:
        handle = await loop.start()
        question = await the_held_call(handle)
        assert question["call"]["arguments"] == {"amount": 5}
        decision = {"approval_id": question["approval_id"], "approver": "ada", "reason": "no"}
        await send_update(handle, "approve" if is_approved else "deny", decision)
        await loop.ended(handle)
    expected = '[Arguments changed by policy] {"amount":5}\npaid' if is_approved else "[Policy denied] not approved: no"
    assert (paid, tool_results_in(loop)) == ([5] * is_approved, [expected])


async def test_an_abort_during_the_second_judgement_asks_nobody_again(client: Client) -> None:
    hold = Hold()

    @dataclass
    class Slow(Lowers):
        is_embedded = True

        async def judge(self, proposal: GateRequest) -> Verdict:
            judgement = a_verdict(True, approval=ApprovalTerms())
            return await hold.then(judgement) if proposal.approved_by else judgement

    pay = FakeTool("pay")
    setup = WORKER_FACTS.model_copy(update={"gate_execution": "activity"})
    async with a_loop(client, [calls("pay"), answers()], pay, engine=Slow(), setup=setup) as loop:
        handle = await loop.start()
        held = await the_held_call(handle)
        await send_update(handle, "approve", {"approval_id": held["approval_id"], "approver": "ada"})
        await hold.reached()
        await handle.signal("abort", "enough")
        ran = await loop.ended(handle)
        hold.go.set()
    assert (pay.contexts, ran.result.termination.reason) == ([], "aborted")
    assert [entry.data["kind"] for entry in ran.journal if entry.event == "ApprovalRequested"] == ["approval", "call"]
