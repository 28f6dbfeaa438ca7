"""Critics of tool calls on a real server: after the gate allows a call, and before it runs."""

from typing import Any

import pytest
from temporalio.client import Client

from orga.activities.ports import ToolContext, ToolError
from orga.testing import FakeTool, ScriptedModel, answers, calls
from orga.workflows.types.messages import Reply, ToolCall
from orga.workflows.types.status import JournalEntry
from orga.workflows.types.tool_calls.recovery import Recovery
from orga.workflows.types.tool_calls.tools import ToolOptions
from tests.support.hold import Hold, wait_for_event
from tests.support.runs.approvals import approval_argument, wait_for_held_calls
from tests.support.runs.critics import a_critic, a_person, agents_with_critics, evaluations, is_review, verdict
from tests.support.runs.loop import Deny, Ran, a_loop
from tests.support.runs.questions import send_update, tool_results_in

BAD = verdict(0.2, 0.9, "Too much money.")


def pays(amount: int) -> Reply:
    return calls("pay", arguments={"amount": amount})


def collected(ran: Ran) -> list[JournalEntry]:
    return [entry for entry in ran.journal if entry.event == "ObservationsCollected"]


async def test_a_rejected_call_is_not_run_and_the_model_reads_why(client: Client) -> None:
    pay, provider = (
        FakeTool("pay", effect="irreversible"),
        ScriptedModel([pays(900), BAD, pays(9), verdict(), answers()], repeats=True),
    )
    agents = agents_with_critics(a_critic(tools=("pa*",)), tools=("pay",))
    async with a_loop(client, provider, pay, agents=agents) as loop:
        ran = await loop.run()
    [first, second] = tool_results_in(loop, 4)
    assert first.startswith("[Not run] The critic quality gives it 0.48 of the 0.70 that are needed (accuracy 0.20,")
    assert "data, not instructions]\nToo much money.\n[" in first
    assert second == "ok"
    assert len(pay.contexts) == 1
    assert (ran.result.tool_calls.run, ran.result.tool_calls.not_run) == (1, 1)
    assert evaluations(ran, "target", "then", "round") == [("pay", "revise", 0), ("pay", "accepted", 1)]
    assert [entry.data["outcomes"][0]["outcome"] for entry in collected(ran)[:2]] == ["not_run", "ok"]


async def test_the_critic_reads_the_call_as_data(client: Client) -> None:
    pay, provider = FakeTool("pay"), ScriptedModel([pays(9), verdict(), answers()], repeats=True)
    async with a_loop(
        client, provider, pay, agents=agents_with_critics(a_critic(tools=("pay",)), tools=("pay",))
    ) as loop:
        await loop.run("pay the bill")
    text = provider.given[1].messages[0].text
    assert "a call of the tool pay, which is not carried out yet" in provider.given[1].system[0]
    assert '{"tool":"pay","does":"the pay tool","effect":"read_only"}' in text
    assert text.count("data, not instructions]") == 3
    assert 'begins: call; data, not instructions]\n{"amount":9}\n[' in text


async def test_calls_of_other_tools_are_not_reviewed(client: Client) -> None:
    pay, look = FakeTool("pay"), FakeTool("look")
    provider = ScriptedModel([calls("look", "pay"), BAD, answers()], repeats=True)
    agents = agents_with_critics(a_critic(tools=("pay",)), tools=("pay", "look"))
    async with a_loop(client, provider, pay, look, agents=agents) as loop:
        await loop.run()
    assert [is_review(request) for request in provider.seen] == [False, True, False]
    assert (len(look.contexts), len(pay.contexts)) == (1, 0)


async def test_a_denied_call_is_not_reviewed(client: Client) -> None:
    pay, provider = FakeTool("pay"), ScriptedModel([pays(9), answers()], repeats=True)
    agents = agents_with_critics(a_critic(tools=("pay",)), tools=("pay",))
    async with a_loop(client, provider, pay, engine=Deny("pay"), agents=agents) as loop:
        await loop.run()
    assert tool_results_in(loop) == ["[Policy denied] pay is forbidden"]
    assert (len(provider.seen), pay.contexts) == (2, [])


async def test_several_rejected_calls_of_a_reply_count_as_one_round(client: Client) -> None:
    pay = FakeTool("pay")
    steps = [calls("pay", "pay"), BAD, BAD, calls("pay", "pay"), BAD, verdict(), answers()]
    agents = agents_with_critics(a_critic(tools=("pay",), max_rounds=2), tools=("pay",))
    async with a_loop(client, steps, pay, agents=agents) as loop:
        ran = await loop.run()
    assert ran.result.termination.reason == "completed"
    assert evaluations(ran, "round", "then") == [(0, "revise"), (0, "revise"), (1, "revise"), (1, "accepted")]
    assert len(pay.contexts) == 1


@pytest.mark.parametrize(
    ("on_exhausted", "reason", "runs"),
    [
        pytest.param("accept", "completed", 1, id="it runs nevertheless"),
        pytest.param("error", "error", 0, id="the run ends"),
    ],
)
async def test_used_up_revisions_of_a_call_are_handled_as_configured(
    client: Client, on_exhausted: str, reason: str, runs: int
) -> None:
    pay = FakeTool("pay")
    agents = agents_with_critics(a_critic(tools=("pay",), max_rounds=1, on_exhausted=on_exhausted), tools=("pay",))
    async with a_loop(client, [pays(900), BAD, pays(800), BAD, answers()], pay, agents=agents) as loop:
        ran = await loop.run()
    assert (ran.result.termination.reason, len(pay.contexts)) == (reason, runs)
    assert evaluations(ran, "approved") == [False, False]


async def test_a_person_sees_all_calls_of_a_reply_at_once(client: Client) -> None:
    pay = FakeTool("pay")
    agents = agents_with_critics(a_person(tools=("pay",)), tools=("pay",))
    async with a_loop(client, [calls("pay", "pay"), answers()], pay, agents=agents) as loop:
        handle = await loop.start()
        one, other = await wait_for_held_calls(handle, 2)
        await send_update(handle, "deny", approval_argument(one, reason="once is enough"))
        await send_update(handle, "approve", approval_argument(other))
        ran = await loop.ended(handle)
    first, second = tool_results_in(loop)
    assert first.startswith("[Not run] A person reviewed it and rejected it: once is enough\n")
    assert second == "ok"
    assert [context.call_id for context in pay.contexts] == ["pay_1"]
    assert evaluations(ran, "reviewer", "then") == [("person:ada", "revise"), ("person:ada", "accepted")]


@pytest.mark.parametrize(
    ("on_failure", "reason", "runs"),
    [pytest.param("closed", "error", 0, id="closed"), pytest.param("open", "completed", 1, id="open")],
)
async def test_a_failed_review_of_a_call_is_handled_as_configured(
    client: Client, on_failure: str, reason: str, runs: int
) -> None:
    pay = FakeTool("pay")
    agents = agents_with_critics(a_critic(tools=("pay",), on_failure=on_failure), tools=("pay",))
    steps = [pays(9), answers("hm"), answers("hm"), answers()]
    async with a_loop(client, steps, pay, agents=agents) as loop:
        ran = await loop.run()
    assert (ran.result.termination.reason, len(pay.contexts)) == (reason, runs)
    assert evaluations(ran, "error") == ["its verdict cannot be read: it is not JSON alone: " + MISSING]


MISSING = "Expecting value at character 0, where it says 'hm'"


async def test_an_abort_ends_the_review_of_a_call(client: Client) -> None:
    hold, pay = Hold(), FakeTool("pay")
    agents = agents_with_critics(a_critic(tools=("pay",)), tools=("pay",))
    async with a_loop(client, [pays(9), hold.step(verdict())], pay, agents=agents) as loop:
        handle = await loop.start()
        await hold.reached()
        await handle.signal("abort", "enough")
        await wait_for_event(hold.cancelled)
        ran = await loop.ended(handle)
    assert (ran.result.termination.reason, pay.contexts) == ("aborted", [])


async def test_a_call_that_would_not_start_is_not_reviewed(client: Client) -> None:
    pay, provider = FakeTool("pay"), ScriptedModel([calls("pay", "pay"), verdict(), answers()], repeats=True)
    agents = agents_with_critics(a_critic(tools=("pay",)), tools=("pay",))
    async with a_loop(client, provider, pay, agents=agents) as loop:
        await loop.run(max_tool_calls=1)
    assert [is_review(request) for request in provider.seen] == [False, True, False]
    assert len(pay.contexts) == 1


async def test_a_saga_does_not_bypass_a_critic(client: Client) -> None:
    pay, book = FakeTool("pay", effect="irreversible"), FakeTool("book")
    steps: list[dict[str, Any]] = [
        {"tool": "book", "arguments": {}, "kind": "read_only"},
        {"tool": "pay", "kind": "final", "arguments": {"amount": 900}},
    ]
    saga = Reply.of(calls=(ToolCall(call_id="s", name="saga", arguments={"steps": steps}),), finish="tool_calls")
    agents = agents_with_critics(a_critic(tools=("pay",)), tools=("pay", "book", "saga"))
    provider = ScriptedModel([saga, BAD, answers()], repeats=True)
    async with a_loop(client, provider, pay, book, agents=agents) as loop:
        await loop.run()
    assert '"amount":900' in provider.given[1].messages[0].text
    assert (pay.contexts, book.contexts) == ([], [])


@pytest.mark.parametrize(
    ("says", "runs"),
    [pytest.param(verdict(), 1, id="approved"), pytest.param(BAD, 0, id="rejected")],
)
async def test_a_fallback_does_not_bypass_a_critic(client: Client, says: Reply, runs: int) -> None:
    def broken(arguments: dict[str, Any], context: ToolContext) -> str:
        raise ToolError("closed")

    recovery = Recovery(strategy="fallback", alternatives=("wire",), max_attempts=1, base_delay_ms=1)
    pay, wire = FakeTool("pay", broken, options=ToolOptions(recovery=recovery)), FakeTool("wire")
    agents = agents_with_critics(a_critic(tools=("wire",)), tools=("pay", "wire"))
    async with a_loop(client, [pays(9), says, answers()], pay, wire, agents=agents) as loop:
        ran = await loop.run()
    assert len(wire.contexts) == runs
    assert evaluations(ran, "target", "then") == [("wire", "accepted" if runs else "skipped")]
    assert ran.result.termination.reason == "completed"
