"""Whatever people do with held calls, exactly the approved ones run, and each runs once."""

from dataclasses import dataclass
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from temporalio.client import Client, WorkflowHandle, WorkflowUpdateFailedError
from temporalio.service import RPCError

from orga.client.journal.reading import read_journal
from orga.testing import FakeTool, answers
from orga.workflows.types.messages import Reply, ToolCall
from orga.workflows.types.tool_calls.gate import ApprovalTerms, GateRequest, Verdict
from tests.support.runs.approvals import wait_for_held_calls
from tests.support.runs.loop import a_loop
from tests.support.runs.questions import send_update
from tests.support.values.policies import a_verdict

SOON_S, LATE_S = 0.3, 3_600
LAST = "last"
"""A call that is decided last. The run waits for it, so every decision reaches the run."""


@dataclass(frozen=True)
class Click:
    """A person's decision about one of the calls."""

    number: int
    word: str
    by: str


clicks = st.builds(
    Click,
    number=st.integers(0, 3),
    word=st.sampled_from(["approve", "deny"]),
    by=st.sampled_from(["ada", "bob", "eve"]),
)


class Terms:
    """A policy engine that requires approval by ada or bob. Some approvals expire soon."""

    is_embedded = True

    async def judge(self, proposal: GateRequest) -> Verdict:
        if proposal.call is None:
            return a_verdict(True)
        expires_s = SOON_S if proposal.call.arguments.get("soon") else LATE_S
        return a_verdict(True, approval=ApprovalTerms(approvers=("ada", "bob"), expires_s=expires_s))


def paying(soon: list[bool]) -> Reply:
    named = [*({"what": str(number), "soon": is_soon} for number, is_soon in enumerate(soon)), {"what": LAST}]
    made = tuple(ToolCall(call_id=f"c{index}", name="pay", arguments=given) for index, given in enumerate(named))
    return Reply.of(calls=made, finish="tool_calls")


async def is_taken(handle: WorkflowHandle[Any, Any], word: str, approval_id: str, by: str) -> bool:
    try:
        await send_update(handle, word, {"approval_id": approval_id, "approver": by})
    except (WorkflowUpdateFailedError, RPCError):
        return False
    return True


async def held(client: Client, handle: WorkflowHandle[Any, Any], count: int) -> list[str]:
    """Return the ids of all held calls, in call order, once this many are still held."""
    await wait_for_held_calls(handle, count)
    asked = [entry.data async for entry in read_journal(client, handle.id) if entry.event == "ApprovalRequested"]
    return [str(data["id"]) for data in asked if data["kind"] == "call"]


@settings(max_examples=20)
@given(soon=st.lists(st.booleans(), min_size=1, max_size=4), made=st.lists(clicks, max_size=10))
async def test_exactly_the_approved_calls_run_once(client: Client, soon: list[bool], made: list[Click]) -> None:
    paid: list[str] = []
    pay = FakeTool("pay", lambda arguments, context: paid.append(arguments["what"]), effect="irreversible")
    answered: dict[int, bool] = {number: False for number, is_soon in enumerate(soon) if is_soon}
    async with a_loop(client, [paying(soon), answers()], pay, engine=Terms()) as loop:
        handle = await loop.start()
        *ids, last = await held(client, handle, soon.count(False) + 1)
        for click in made:
            number = click.number % len(ids)
            may = number not in answered and click.by != "eve"
            assert await is_taken(handle, click.word, ids[number], click.by) == may
            if may:
                answered[number] = click.word == "approve"
        assert paid == []
        for number in set(range(len(ids))) - set(answered):
            assert await is_taken(handle, "deny", ids[number], "bob")
        assert await is_taken(handle, "deny", last, "ada")
        for approval_id in (*ids, last):
            assert not await is_taken(handle, "approve", approval_id, "ada")
        await loop.ended(handle)
    assert sorted(paid) == [str(number) for number, yes in sorted(answered.items()) if yes]
