"""An abort, the time limit or Temporal's cancellation interrupts calls in flight, and finished work is kept."""

import asyncio
import time
import uuid
from typing import Any

import pytest
from temporalio.client import Client

from orga.activities.ports import ToolContext
from orga.testing import FakeTool, ScriptedModel, answers, calls
from orga.workflows.types.status import ShownMessage
from orga.workflows.types.tool_calls.tools import Effect
from tests.support.hold import PATIENCE_S, Hold, wait_for_event
from tests.support.runs.loop import Loop, Ran, a_loop, a_worker

CLOCK_S = 5
"""Seconds. The time limit of the interrupted run. The work to interrupt has to be in flight by then."""


async def conversation_of(ran: Ran) -> list[ShownMessage]:
    return [ShownMessage.model_validate(m) for m in await ran.handle.query("conversation")]


async def test_an_abort_cancels_the_model_call_in_flight(client: Client) -> None:
    hold = Hold()
    async with a_loop(client, [calls("look"), hold.step(answers())], FakeTool("look")) as loop:
        handle = await loop.start()
        await hold.reached()
        await handle.signal("abort", "too slow")
        await wait_for_event(hold.cancelled)
        ran = await loop.ended(handle)
        shown = await conversation_of(ran)

    assert (ran.result.termination.reason, ran.result.termination.detail) == ("aborted", "too slow")
    assert (ran.result.iterations, ran.result.usage.total_tokens, ran.result.tool_calls.run) == (1, 110, 1)
    assert [m.role for m in shown] == ["system", "user", "assistant", "tool"]


@pytest.mark.parametrize(
    ("effect", "slow_result"),
    [
        pytest.param("read_only", "[Cancelled] stopped before it ended", id="read only"),
        pytest.param(
            "irreversible",
            "[Cancelled] stopped before it ended; the outcome is unknown: it may have taken effect",
            id="irreversible",
        ),
    ],
)
async def test_an_abort_cancels_the_tools_in_flight_and_every_call_has_a_result(
    client: Client, effect: Effect, slow_result: str
) -> None:
    hold = Hold()
    slow = FakeTool("slow", lambda a, c: hold.then("never"), effect=effect)
    quick = FakeTool("quick", lambda a, c: "seen")
    async with a_loop(client, [calls("quick", "slow", "quick")], slow, quick) as loop:
        handle = await loop.start(max_concurrent_tools=2)
        await hold.reached()
        await loop_has(quick, 2)
        await handle.signal("abort")
        await wait_for_event(hold.cancelled)
        ran = await loop.ended(handle)
        shown = await conversation_of(ran)

    assert ran.result.termination.reason == "aborted"
    assert [(m.call_id, m.text) for m in shown[3:]] == [
        ("quick_0", "seen"),
        ("slow_1", slow_result),
        ("quick_2", "seen"),
    ]
    assert ran.result.tool_calls.model_dump() == {"proposed": 3, "run": 3, "denied": 0, "failed": 1}
    [observed] = [entry for entry in ran.journal if entry.event == "ObservationsCollected"]
    assert set(observed.effect_texts) == ({"slow_1"} if effect == "irreversible" else set())


async def loop_has(tool: FakeTool, times: int) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while len(tool.contexts) < times:
            await asyncio.sleep(0.05)


async def test_queued_calls_are_not_run_after_an_abort(client: Client) -> None:
    hold = Hold()
    tool = FakeTool("slow", lambda a, c: hold.then("never"), effect="irreversible")
    async with a_loop(client, [calls("slow", "slow", "slow")], tool) as loop:
        handle = await loop.start(max_concurrent_tools=1)
        await hold.reached()
        await handle.signal("abort")
        ran = await loop.ended(handle)
        shown = await conversation_of(ran)

    not_run = "[Not run] the run was interrupted before this call started"
    assert [m.text for m in shown[4:]] == [not_run, not_run]
    assert len(tool.contexts) == 1
    assert ran.result.tool_calls.model_dump() == {"proposed": 3, "run": 1, "denied": 0, "failed": 1, "not_run": 2}


async def test_a_tool_that_ignores_cancellation_does_not_hang_the_abort(client: Client) -> None:
    hold, end = Hold(), asyncio.Event()

    async def stubborn(arguments: dict[str, Any], context: ToolContext) -> str:
        try:
            return await hold.then("never")
        except asyncio.CancelledError:
            await end.wait()
            return "done all the same"

    tool = FakeTool("stubborn", stubborn, effect="irreversible")
    async with a_loop(client, [calls("stubborn")], tool) as loop:
        handle = await loop.start()
        await hold.reached()
        start = time.monotonic()
        await handle.signal("abort")
        ran = await loop.ended(handle)
        took = time.monotonic() - start
        shown = await conversation_of(ran)
        end.set()

    assert took < PATIENCE_S
    assert ran.result.termination.reason == "aborted"
    assert "outcome is unknown" in shown[-1].text


async def test_a_tool_that_ends_within_the_grace_keeps_its_result(client: Client) -> None:
    hold = Hold()

    async def careful(arguments: dict[str, Any], context: ToolContext) -> str:
        try:
            return await hold.then("never")
        except asyncio.CancelledError:
            return "put away"

    async with a_loop(client, [calls("careful")], FakeTool("careful", careful)) as loop:
        handle = await loop.start()
        await hold.reached()
        await handle.signal("abort")
        ran = await loop.ended(handle)
        shown = await conversation_of(ran)

    assert shown[-1].text == "put away"
    assert ran.result.tool_calls.failed == 0


async def test_the_time_limit_interrupts_a_model_call(client: Client) -> None:
    hold = Hold()
    async with a_loop(client, [calls("look"), hold.step(answers())], FakeTool("look")) as loop:
        ran = await loop.run(timeout_s=CLOCK_S)
        shown = await conversation_of(ran)

    assert hold.cancelled.is_set()
    assert (ran.result.termination.reason, ran.result.termination.detail) == ("timeout", f"limit of {CLOCK_S} s")
    assert (ran.result.iterations, ran.result.usage.total_tokens) == (1, 110)
    assert CLOCK_S <= ran.result.duration_s < CLOCK_S + PATIENCE_S
    assert [m.role for m in shown] == ["system", "user", "assistant", "tool"]


async def test_the_time_limit_interrupts_a_tool(client: Client) -> None:
    hold = Hold()
    tool = FakeTool("slow", lambda a, c: hold.then("never"), effect="idempotent")
    async with a_loop(client, [calls("slow", reply_text="I wait.")], tool) as loop:
        ran = await loop.run(timeout_s=CLOCK_S)
        shown = await conversation_of(ran)

    assert hold.cancelled.is_set()
    assert (ran.result.termination.reason, ran.result.iterations) == ("timeout", 1)
    assert [m.text for m in shown[2:]] == [
        "I wait.",
        "[Cancelled] stopped before it ended; the outcome is unknown: it may have taken effect",
    ]


async def test_the_answer_so_far_is_kept_at_the_time_limit(client: Client) -> None:
    hold = Hold()
    async with a_loop(client, [answers("the first half", finish="length"), hold.step(answers())]) as loop:
        ran = await loop.run(timeout_s=CLOCK_S)

    assert (ran.result.termination.reason, ran.result.output) == ("timeout", "the first half")


async def test_a_temporal_cancellation_ends_the_run_as_aborted(client: Client) -> None:
    hold = Hold()
    async with a_loop(client, [hold.step(answers())]) as loop:
        handle = await loop.start()
        await hold.reached()
        await handle.cancel()
        await wait_for_event(hold.cancelled)
        ran = await loop.ended(handle)

    assert (ran.result.termination.reason, ran.result.termination.detail) == ("aborted", "cancelled")


async def test_a_cancellation_before_the_first_task_ends_the_run_as_aborted(client: Client) -> None:
    loop = Loop(client, f"test-{uuid.uuid4()}", ScriptedModel([answers()], repeats=True))
    handle = await loop.start()
    await handle.cancel()
    async with a_worker(loop):
        ran = await loop.ended(handle)

    assert ran.result.termination.reason == "aborted"
    assert ran.result.iterations == 0


async def test_an_abort_wins_over_a_timeout_during_its_cancellation(client: Client) -> None:
    hold = Hold()

    async def slow_to_stop(arguments: dict[str, Any], context: ToolContext) -> str:
        try:
            return await hold.then("never")
        except asyncio.CancelledError:
            await asyncio.sleep(3.8)
            raise

    async with a_loop(client, [calls("slow")], FakeTool("slow", slow_to_stop)) as loop:
        handle = await loop.start(timeout_s=4)
        await hold.reached()
        await handle.signal("abort", "mine")
        ran = await loop.ended(handle)

    assert (ran.result.termination.reason, ran.result.termination.detail) == ("aborted", "mine")


async def test_an_abort_during_the_gate_denies_nothing(client: Client) -> None:
    """A call that no policy has denied must not be reported as denied."""
    hold = Hold()

    class Slow:
        is_embedded = True

        async def judge(self, proposal: Any) -> Any:
            return await hold.then(None)

    tool = FakeTool("look")
    async with a_loop(client, [calls("look")], tool, engine=Slow()) as loop:
        handle = await loop.start()
        await hold.reached()
        await handle.signal("abort")
        ran = await loop.ended(handle)
        shown = await conversation_of(ran)
        hold.go.set()

    assert ran.result.termination.reason == "aborted"
    assert tool.contexts == []
    assert shown[-1].text.startswith("[Not run]")
