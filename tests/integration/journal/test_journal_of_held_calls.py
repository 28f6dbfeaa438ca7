"""Journal entries for calls that wait for a person or a critic, or that no gate has judged."""

from typing import Any

from temporalio.client import Client

from orga.activities.ports import ToolContext, ToolError
from orga.client.cli.policy.explain import explanations
from orga.testing import FakeTool, answers, calls
from orga.workflows.types.tool_calls.recovery import Recovery
from orga.workflows.types.tool_calls.tools import ToolOptions
from tests.support.hold import Hold
from tests.support.runs.approvals import Asks, approval_argument, wait_for_held_calls
from tests.support.runs.critics import a_critic, a_person, agents_with_critics, verdict
from tests.support.runs.loop import Ran, a_loop
from tests.support.runs.questions import send_update

ROUND = ["ToolsDispatched", "ObservationsCollected"]


def dispatched(ran: Ran) -> list[str]:
    reported = [entry.data["tools"] for entry in ran.journal if entry.event == "ToolsDispatched"]
    return [tool["call_id"] for tools in reported for tool in tools]


def outcomes(ran: Ran) -> list[tuple[str, str, str]]:
    reported = [entry.data["outcomes"] for entry in ran.journal if entry.event == "ObservationsCollected"]
    return [(o["call_id"], o["outcome"], o.get("error", "")) for of_reply in reported for o in of_reply]


def events(ran: Ran) -> list[str]:
    """Return the events of the first iteration, from the gate's verdict on."""
    of_first = [entry.event for entry in ran.journal if entry.iteration == 1]
    return of_first[of_first.index("PolicyEvaluated") :]


def frozen(arguments: dict[str, Any], context: ToolContext) -> str:
    raise ToolError("account is frozen", retryable=False)


async def test_a_failed_approved_call_is_recorded_with_its_error(client: Client) -> None:
    pay = FakeTool("pay", frozen, effect="irreversible")
    async with a_loop(client, [calls("pay"), answers()], pay, engine=Asks()) as loop:
        handle = await loop.start()
        [question] = await wait_for_held_calls(handle)
        await send_update(handle, "approve", approval_argument(question))
        ran = await loop.ended(handle)

    assert dispatched(ran) == ["pay_0"]
    assert outcomes(ran) == [("pay_0", "failed", "ToolError: account is frozen")]
    asked = ["PolicyEvaluated", "ApprovalRequested", "ApprovalRequested"]
    answered = ["InterventionReceived", "ApprovalResolved", "ApprovalResolved", "PolicyEvaluated"]
    assert events(ran) == [*asked, *answered, *ROUND]


async def test_the_later_verdicts_name_their_calls(client: Client) -> None:
    tools = [FakeTool("look"), FakeTool("pay", effect="irreversible")]
    async with a_loop(client, [calls("look", "pay"), answers()], *tools, engine=Asks()) as loop:
        handle = await loop.start()
        [question] = await wait_for_held_calls(handle)
        await send_update(handle, "approve", approval_argument(question))
        ran = await loop.ended(handle)

    reported = [
        entry.data.get("calls") for entry in ran.journal if entry.event == "PolicyEvaluated" and entry.iteration == 1
    ]
    assert reported == [None, ["look_0"], ["pay_1"]]
    explained = [
        (one.place, one.proposal and one.proposal.tool, one.verdict.decision) for one in explanations(ran.journal, "1")
    ]
    first = [("1.0", "look", "allow"), ("1.1", "pay", "approval")]
    assert explained == [*first, ("1.0", "look", "allow"), ("1.1", "pay", "allow")]
    assert dispatched(ran) == ["look_0", "pay_1"]


async def test_a_call_that_is_cut_off_is_not_dispatched_next_to_a_requeued_one(client: Client) -> None:
    model = Hold()

    def down_at_first(arguments: dict[str, Any], context: ToolContext) -> str:
        if len(save.contexts) == 1:
            raise ToolError("down")
        return "saved"

    letter = ToolOptions(recovery=Recovery(strategy="dead_letter", max_attempts=1))
    save, pay = FakeTool("save", down_at_first, effect="idempotent", options=letter), FakeTool("pay")
    cut = calls("pay").model_copy(update={"finish": "length"})
    async with a_loop(client, [calls("save"), model.step(cut), answers()], save, pay) as loop:
        handle = await loop.start()
        await model.reached()
        await send_update(handle, "requeue", "1.0")
        model.go.set()
        ran = await loop.ended(handle)

    assert (len(save.contexts), pay.contexts) == (2, [])
    assert dispatched(ran) == ["save_0"]
    assert outcomes(ran) == [("save_0", "failed", "ToolError: down")]


async def test_a_call_that_a_critic_rejects_is_not_dispatched(client: Client) -> None:
    pay = FakeTool("pay")
    agents = agents_with_critics(a_critic(tools=("pay",)), tools=("pay", "look"))
    steps = [calls("look", "pay", "pay"), verdict(0.2, 0.2, "no"), verdict(), answers()]
    async with a_loop(client, steps, pay, FakeTool("look"), agents=agents) as loop:
        ran = await loop.run()

    assert dispatched(ran) == ["look_0", "pay_2"]
    assert outcomes(ran) == [("look_0", "ok", ""), ("pay_1", "not_run", ""), ("pay_2", "ok", "")]
    assert events(ran) == ["PolicyEvaluated", "CritiqueEvaluated", "CritiqueEvaluated", *ROUND]


async def test_a_call_aborted_during_review_is_not_dispatched(client: Client) -> None:
    agents = agents_with_critics(a_person(tools=("pay",)), tools=("pay",))
    async with a_loop(client, [calls("pay"), answers()], FakeTool("pay"), agents=agents) as loop:
        handle = await loop.start()
        await wait_for_held_calls(handle)
        await handle.signal("abort", "enough")
        ran = await loop.ended(handle)

    assert dispatched(ran) == []
    assert outcomes(ran) == [("pay_0", "not_run", "")]
