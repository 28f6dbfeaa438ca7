"""Hours, days and weeks of a run, on the time-skipping server, which skips time only while no activity runs."""

import asyncio
import time
from collections.abc import AsyncGenerator
from typing import Any

import pytest
from temporalio.client import Client
from temporalio.testing import WorkflowEnvironment

from orga.activities.ports import ModelError, ToolContext, ToolError
from orga.testing import FakeTool, answers, calls
from orga.workflows.types.tool_calls.tools import ToolOptions
from tests.support.hold import Hold, wait_for_event, wait_until
from tests.support.parts.time_skipping import time_skipping
from tests.support.runs.long_runs import DAY, EACH_ITERATION, HOUR, WEEK, a_long_loop, seen_by, time_left, took
from tests.support.runs.loop import Ran, a_loop
from tests.support.runs.waits import wait_until_paused

NEARLY_ALL = 295
"""Seconds, out of the 300 s of a run by default. The rest passes in real time during a call."""


@pytest.fixture(scope="module")
async def environment() -> AsyncGenerator[WorkflowEnvironment]:
    async with time_skipping() as environment:
        yield environment


def come_back_in(seconds: float) -> ModelError:
    return ModelError("RateLimited", "429: slow down", retryable=True, retry_after_s=seconds)


def ended_as(ran: Ran) -> tuple[str, str]:
    return ran.result.termination.reason, ran.result.termination.detail


async def waits_for_a_retry(handle: Any) -> None:
    """Wait until a model call has failed and its next attempt is due later."""

    async def is_due_later() -> bool:
        pending = (await handle.describe()).raw_description.pending_activities
        return any(call.HasField("last_failure") for call in pending)

    await wait_until(is_due_later)


async def test_the_delay_requested_by_a_provider_passes_in_workflow_time(environment: WorkflowEnvironment) -> None:
    async with a_long_loop(environment, [come_back_in(120), answers("late")]) as loop:
        ran = await loop.run()

    assert (ran.result.output, seen_by(loop)) == ("late", 2)
    assert 120 <= ran.result.duration_s < 150


async def test_the_time_limit_interrupts_a_model_call_after_its_retry_delay(environment: WorkflowEnvironment) -> None:
    hold = Hold()
    steps = [calls("look"), come_back_in(NEARLY_ALL), hold.step(answers())]
    async with a_long_loop(environment, steps, FakeTool("look", lambda a, c: "seen")) as loop:
        ran = await loop.run()
        shown = await ran.handle.query("conversation")
        await wait_for_event(hold.cancelled)

    assert ended_as(ran) == ("timeout", "limit of 300 s")
    assert 300 <= ran.result.duration_s < 310
    assert (ran.result.iterations, ran.result.usage.total_tokens, ran.result.tool_calls.run) == (1, 110, 1)
    assert [(m["role"], m["text"]) for m in shown[1:]] == [("user", "do it"), ("assistant", ""), ("tool", "seen")]


async def test_the_time_limit_interrupts_a_tool_between_attempts_and_within_one(
    environment: WorkflowEnvironment,
) -> None:
    hold = Hold()

    def body(arguments: dict[str, Any], context: ToolContext) -> Any:
        if context.attempt == 1:
            raise ToolError("not yet", retryable=True)
        return hold.then("never")

    options = ToolOptions(initial_interval_s=NEARLY_ALL, max_attempts=2)
    slow = FakeTool("slow", body, effect="idempotent", options=options)
    async with a_long_loop(environment, [calls("slow", reply_text="I wait.")], slow) as loop:
        ran = await loop.run()
        shown = await ran.handle.query("conversation")
        await wait_for_event(hold.cancelled)

    assert ended_as(ran) == ("timeout", "limit of 300 s")
    assert (ran.result.iterations, ran.result.usage.model_calls) == (1, 1)
    assert [context.attempt for context in slow.contexts] == [1, 2]
    assert len({context.idempotency_key for context in slow.contexts}) == 1
    assert [m["text"] for m in shown[2:]] == [
        "I wait.",
        "[Cancelled] stopped before it ended; the outcome is unknown: it may have taken effect",
    ]


async def test_a_tool_rejected_until_the_end_reports_the_cause(client: Client) -> None:
    """Its last attempt ends before the time limit. If it were cut short while it waits, the cause would be lost.

    The time-skipping server does not tell an activity its retry policy.
    """

    def body(arguments: dict[str, Any], context: ToolContext) -> str:
        raise ToolError("api.example answered 429: slow down", kind="Http429", retryable=True, acted="no")

    options = ToolOptions(initial_interval_s=6, backoff_coefficient=10, max_interval_s=100, max_attempts=10)
    busy = FakeTool("busy", body, effect="read_only", options=options)
    async with a_loop(client, [calls("busy"), answers("it is busy")], busy) as loop:
        ran = await loop.run(timeout_s=50)
        shown = await ran.handle.query("conversation")

    assert [context.attempt for context in busy.contexts] == [1, 2]
    assert "Http429: api.example answered 429: slow down" in shown[3]["text"]
    assert "[Cancelled]" not in shown[3]["text"]
    assert (ended_as(ran)[0], ran.result.output) == ("completed", "it is busy")


async def test_a_requested_delay_beyond_the_time_limit_ends_with_the_error_of_the_provider(
    environment: WorkflowEnvironment,
) -> None:
    """The call is tried once more just before the end: "limit of 300 s" alone would hide the cause."""
    async with a_long_loop(environment, [calls("look"), come_back_in(3_600)], FakeTool("look")) as loop:
        ran = await loop.run()

    assert ended_as(ran) == ("error", "RateLimited: 429: slow down")
    assert seen_by(loop) == 3
    assert 290 < ran.result.duration_s < 300
    assert (ran.result.iterations, ran.result.usage.total_tokens) == (1, 110)


async def test_an_abort_during_a_long_retry_delay_ends_the_run_at_once(environment: WorkflowEnvironment) -> None:
    async with a_long_loop(environment, [come_back_in(3_600), answers()]) as loop:
        handle = await loop.start(timeout_s=2 * HOUR.total_seconds())
        await waits_for_a_retry(handle)
        before = time.monotonic()
        await handle.signal("abort", "not worth the wait")
        ran = await loop.ended(handle)

    assert ended_as(ran) == ("aborted", "not worth the wait")
    assert (seen_by(loop), ran.result.iterations) == (1, 0)
    assert max(time.monotonic() - before, ran.result.duration_s) < 60


async def test_a_long_retry_delay_ends_as_soon_on_the_real_server(client: Client) -> None:
    """The real server has its own rules for cancelling a waiting retry and for giving up on it."""
    async with a_loop(client, [come_back_in(3_600)]) as loop:
        handle = await loop.start()
        await waits_for_a_retry(handle)
        await handle.signal("abort", "not worth the wait")
        aborted = await loop.ended(handle)
        out_of_time = await loop.run(timeout_s=6)

    assert ended_as(aborted) == ("aborted", "not worth the wait")
    assert aborted.result.duration_s < 30
    assert ended_as(out_of_time) == ("error", "RateLimited: 429: slow down")
    assert 2 < out_of_time.result.duration_s < 6


async def test_the_clock_stops_during_a_pause_of_a_day(environment: WorkflowEnvironment) -> None:
    hold = Hold()
    look = FakeTool("look")
    async with a_long_loop(environment, [hold.step(calls("look")), answers("rested")], look) as loop:
        handle = await loop.start(timeout_s=300)
        await hold.reached()
        await handle.signal("pause")
        hold.go.set()
        await wait_until_paused(handle)
        before = await time_left(handle)
        await environment.sleep(DAY)
        assert (await time_left(handle), look.contexts) == (before, [])
        await handle.signal("resume")
        ran = await loop.ended(handle)

    assert ran.result.output == "rested"
    assert ran.result.duration_s < 60
    assert took(ran) > DAY


async def test_a_timer_started_before_a_pause_does_not_fire_in_it(environment: WorkflowEnvironment) -> None:
    async with a_long_loop(environment, [come_back_in(200), calls("look"), answers()], FakeTool("look")) as loop:
        handle = await loop.start(timeout_s=300)
        await waits_for_a_retry(handle)
        await handle.signal("pause")
        await environment.sleep(HOUR)
        await wait_until_paused(handle)
        assert 200 < await time_left(handle) <= 300
        await handle.signal("resume")
        ran = await loop.ended(handle)

    assert ran.result.termination.reason == "completed"
    assert ran.result.duration_s < 60


async def test_two_pauses_add_up_and_the_time_between_them_counts(environment: WorkflowEnvironment) -> None:
    hold = Hold()
    steps = [hold.step(calls("look")), come_back_in(120), calls("look"), come_back_in(150), answers()]
    async with a_long_loop(environment, steps, FakeTool("look")) as loop:
        handle = await loop.start(timeout_s=300)
        await hold.reached()
        await handle.signal("pause")
        hold.go.set()
        await wait_until_paused(handle)
        await environment.sleep(DAY)
        await handle.signal("resume")
        await waits_for_a_retry(handle)
        await environment.sleep(60)
        await handle.signal("pause")
        await environment.sleep(WEEK)
        await wait_until_paused(handle)
        assert 200 < await time_left(handle) <= 240
        await handle.signal("resume")
        ran = await loop.ended(handle)

    assert ran.result.termination.reason == "completed"
    assert 60 + 150 <= ran.result.duration_s < 60 + 150 + 60


async def test_a_pause_of_a_day_counts_in_no_segment(environment: WorkflowEnvironment) -> None:
    """The later segments take over the clock with its pauses. Each segment waits for a provider."""
    hold = Hold()
    steps = [hold.step(calls("look")), come_back_in(100), calls("look"), come_back_in(100), answers("on time")]
    async with a_long_loop(environment, steps, FakeTool("look"), setup=EACH_ITERATION) as loop:
        handle = await loop.start(timeout_s=300)
        await hold.reached()
        await handle.signal("pause")
        hold.go.set()
        await wait_until_paused(handle)
        await environment.sleep(DAY)
        await handle.signal("resume")
        ran = await loop.ended(handle)

    assert (ran.result.output, len(ran.histories)) == ("on time", 3)
    assert 200 <= ran.result.duration_s < 260


async def test_the_clock_continues_across_segments(environment: WorkflowEnvironment) -> None:
    steps = [come_back_in(80), calls("look")] * 3 + [come_back_in(80)]
    async with a_long_loop(environment, steps, FakeTool("look"), setup=EACH_ITERATION) as loop:
        ran = await loop.run(timeout_s=300)

    assert ended_as(ran) == ("error", "RateLimited: 429: slow down")
    assert (ran.result.iterations, len(ran.histories)) == (3, 4)
    assert 290 < ran.result.duration_s < 300


async def test_an_abort_ends_a_pause_of_a_week(environment: WorkflowEnvironment) -> None:
    async with a_long_loop(environment, [answers()]) as loop:
        handle = await loop.start(timeout_s=300)
        await handle.signal("pause")
        await wait_until_paused(handle)
        await environment.sleep(WEEK)
        await handle.signal("abort", "nobody came back")
        ran = await loop.ended(handle)

    assert ended_as(ran) == ("aborted", "nobody came back")
    assert ran.result.duration_s < 60
    assert took(ran) > WEEK


async def test_a_tool_on_an_unpolled_task_queue_is_reported_and_the_run_continues(
    environment: WorkflowEnvironment,
) -> None:
    far = FakeTool("far", options=ToolOptions(task_queue="nobody polls this"))
    async with a_long_loop(environment, [calls("far"), answers("without it")], far) as loop:
        handle = await loop.start()
        await wait_until(lambda: is_acting(handle))
        ended = asyncio.create_task(loop.ended(handle))
        await environment.sleep(55)  # this and the wait for the result suffice to skip time despite the scheduled call
        ran = await ended
        shown = await handle.query("conversation")

    assert ran.result.output == "without it"
    assert ran.result.duration_s >= 60
    assert shown[3]["text"] == "[Error] no worker took it in time (is one polling its task queue?)"
    assert far.contexts == []


async def is_acting(handle: Any) -> bool:
    return (await handle.query("status"))["phase"] == "acting"
