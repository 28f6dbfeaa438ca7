"""A waiting run continues as new when its history grows, and keeps its questions under the same ids."""

from contextlib import suppress
from typing import Any

from temporalio.client import Client, WorkflowExecutionStatus
from temporalio.service import RPCError

from orga.testing import FakeTool, answers, calls
from tests.support.hold import Hold, wait_until
from tests.support.runs.approvals import Asks, approval_argument, wait_for_held_calls
from tests.support.runs.loop import a_loop
from tests.support.runs.questions import SHORT, send_update, steer_until_continued, tool_results_in, wait_for_question


async def test_a_held_call_keeps_its_id_and_time_and_is_made_once(client: Client) -> None:
    pay, engine = FakeTool("pay", effect="irreversible"), Asks()
    steps = [calls("pay", arguments={"amount": 7}, reply_text="I pay"), answers("paid")]
    async with a_loop(client, steps, pay, engine=engine, setup=SHORT) as loop:
        handle = await loop.start()
        [before] = await wait_for_held_calls(handle)
        await steer_until_continued(handle)
        [after] = await wait_for_held_calls(handle)
        assert after == before
        await send_update(handle, "approve", approval_argument(after))
        ran = await loop.ended(handle)

    assert (ran.result.output, ran.result.iterations, len(pay.contexts)) == ("paid", 2, 1)
    assert ran.result.tool_calls.run == 1
    assert len(ran.histories) == 2
    assert tool_results_in(loop)[:1] == ["ok"]
    events = [entry.event for entry in ran.journal]
    assert (events.count("ReasoningComplete"), events.count("ToolsDispatched")) == (2, 2)
    assert [e.data["id"] for e in ran.journal if e.event == "ApprovalResolved" and e.data["kind"] == "call"] == [
        before["approval_id"]
    ]


async def test_a_decision_on_one_of_two_calls_is_kept(client: Client) -> None:
    pay = FakeTool("pay", lambda arguments, context: "paid", effect="irreversible")
    async with a_loop(client, [calls("pay", "pay"), answers()], pay, engine=Asks(), setup=SHORT) as loop:
        handle = await loop.start()
        first, second = await wait_for_held_calls(handle, 2)
        await send_update(handle, "deny", approval_argument(first, reason="not this one"))
        await steer_until_continued(handle)
        assert await wait_for_held_calls(handle) == [second]
        await send_update(handle, "approve", approval_argument(second))
        ran = await loop.ended(handle)
    assert len(pay.contexts) == 1
    assert tool_results_in(loop)[:2] == ["[Policy denied] not approved: not this one", "paid"]
    assert len(ran.histories) == 2


async def test_a_question_about_a_budget_is_kept(client: Client) -> None:
    async with a_loop(client, [calls("look"), answers("done")], FakeTool("look"), setup=SHORT) as loop:
        handle = await loop.start(on_exhausted="ask", max_iterations=1)
        before = await wait_for_question(handle)
        await steer_until_continued(handle)
        assert await wait_for_question(handle) == before
        await send_update(handle, "extend_budget", {"max_iterations": 9})
        ran = await loop.ended(handle)
    assert (ran.result.termination.reason, ran.result.output, len(ran.histories)) == ("completed", "done", 2)


async def test_a_step_that_waits_for_a_decision_keeps_waiting(client: Client) -> None:
    def body(arguments: dict[str, Any], context: object) -> str:
        raise ValueError("no")

    tool = FakeTool("look", body)
    once = {"strategy": "retry", "max_attempts": 1}
    steps = [calls("look")] * 2 + [answers("done")]
    async with a_loop(client, steps, tool, setup=SHORT) as loop:
        handle = await loop.start(step_iteration={"on_limit_reached": "escalate"}, recovery=once)
        before = await wait_for_question(handle)
        await steer_until_continued(handle)
        assert await wait_for_question(handle) == before
        decision = {"escalation_id": before["wait_id"], "choice": "result", "result": "42"}
        await send_update(handle, "resolve_escalation", decision)
        ran = await loop.ended(handle)
    assert (ran.result.output, len(ran.histories)) == ("done", 2)
    assert any("42" in message.text for message in loop.provider.seen[-1].messages)  # pyright: ignore


async def test_a_finished_call_next_to_a_waiting_step_is_not_repeated(client: Client) -> None:
    def body(arguments: dict[str, Any], context: object) -> str:
        raise ValueError("no")

    look, pay = FakeTool("look", body), FakeTool("pay", effect="irreversible")
    once = {"strategy": "retry", "max_attempts": 1}
    steps = [calls("look"), calls("look", "pay"), answers("done")]
    async with a_loop(client, steps, look, pay, setup=SHORT) as loop:
        handle = await loop.start(step_iteration={"on_limit_reached": "escalate"}, recovery=once)
        before = await wait_for_question(handle)
        await steer_until_continued(handle)
        decision = {"escalation_id": before["wait_id"], "choice": "result", "result": "42"}
        await send_update(handle, "resolve_escalation", decision)
        ran = await loop.ended(handle)
    assert (len(look.contexts), len(pay.contexts)) == (2, 1)
    assert (ran.result.tool_calls.run, ran.result.iterations, len(ran.histories)) == (3, 3, 2)


async def test_a_pause_lasts_across_continue_as_new(client: Client) -> None:
    hold = Hold()
    async with a_loop(client, [hold.step(calls("look")), answers("done")], FakeTool("look"), setup=SHORT) as loop:
        handle = await loop.start()
        await hold.reached()
        await handle.signal("pause")
        hold.go.set()
        await steer_until_continued(handle)
        assert (await handle.query("status"))["paused"]
        await handle.signal("resume")
        ran = await loop.ended(handle)
    assert ran.result.output == "done"


async def test_a_run_that_cannot_continue_as_new_ends_with_a_result_before_its_history_is_full(client: Client) -> None:
    """A call that a person decides about is in the middle of its iteration, so the next segment would repeat it."""

    def body(arguments: dict[str, Any], context: object) -> str:
        raise ValueError("no")

    full = SHORT.model_copy(update={"full_events": 120})
    async with a_loop(client, [calls("look"), answers()], FakeTool("look", body), setup=full) as loop:
        handle = await loop.start(recovery={"strategy": "escalate", "max_attempts": 1})
        await wait_for_question(handle)

        async def has_ended() -> bool:
            with suppress(RPCError):  # the signal may come too late
                await handle.signal("steer", "a note")
            return (await handle.describe()).status != WorkflowExecutionStatus.RUNNING

        await wait_until(has_ended)
        ran = await loop.ended(handle)
    assert ran.result.termination.reason == "error"
    assert "the history is full" in ran.result.termination.detail
    assert ran.result.tool_calls.failed == 1
