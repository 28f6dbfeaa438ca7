"""Results that come after days and weeks, on the time-skipping server. The wait uses no time of the run."""

from collections.abc import AsyncGenerator
from datetime import timedelta

import pytest
from temporalio.api.enums.v1 import EventType
from temporalio.testing import WorkflowEnvironment

from tests.support.parts.time_skipping import time_skipping
from tests.support.runs.deferred import a_check, checks, completion, waiting_calls
from tests.support.runs.loop import a_loop
from tests.support.runs.questions import send_update, tool_results_in
from tests.support.runs.sessions import begin, close_session, turn_summary

DAY = timedelta(days=1)
WEEK = 7 * DAY


@pytest.fixture(scope="module")
async def environment() -> AsyncGenerator[WorkflowEnvironment]:
    async with time_skipping() as environment:
        yield environment


async def test_results_that_arrive_during_two_weeks_count_and_the_weeks_do_not(
    environment: WorkflowEnvironment,
) -> None:
    tool = a_check(expires_s=(3 * WEEK).total_seconds())
    async with a_loop(environment.client, checks("check", "check"), tool) as loop:
        loop.execution_timeout = 8 * WEEK
        handle = await loop.start()
        first, second = await waiting_calls(handle, 2)
        await environment.sleep(WEEK)
        await send_update(handle, "complete_tool_call", completion(second, "two"))
        await environment.sleep(WEEK)
        assert (await handle.query("status"))["budgets"]["time_s"] > 290
        await send_update(handle, "complete_tool_call", completion(first, "one"))
        ran = await loop.ended(handle)
    assert tool_results_in(loop) == ["one", "two"]
    assert ran.result.duration_s < 60
    timers = [event for event in ran.history.events if event.event_type == EventType.EVENT_TYPE_TIMER_STARTED]
    assert len(timers) < 10


async def test_a_call_that_nobody_completes_for_days_expires(environment: WorkflowEnvironment) -> None:
    tool = a_check(expires_s=(3 * DAY).total_seconds())
    async with a_loop(environment.client, checks("check", "check"), tool) as loop:
        loop.execution_timeout = 8 * WEEK
        handle = await loop.start()
        first, _ = await waiting_calls(handle, 2)
        await environment.sleep(2 * DAY)
        await send_update(handle, "complete_tool_call", completion(first))
        await environment.sleep(DAY)
        ran = await loop.ended(handle)
    assert tool_results_in(loop) == ["fine", "[Error] Expired: no result of check arrived within 259200 s"]
    assert ran.result.termination.reason == "completed"


async def test_a_turn_of_a_session_waits_for_weeks(environment: WorkflowEnvironment) -> None:
    tool = a_check(expires_s=(5 * WEEK).total_seconds())
    async with a_loop(environment.client, checks(), tool) as loop:
        session = await begin(loop, idle_timeout_s=DAY.total_seconds())
        handle = environment.client.get_workflow_handle(session.id)
        turn = await session.post("check her")
        [wait] = await waiting_calls(handle)
        await environment.sleep(4 * WEEK)
        await send_update(handle, "complete_tool_call", completion(wait))
        assert turn_summary(await session.result_of(turn)) == (1, "done", "completed")
        await close_session(session)
