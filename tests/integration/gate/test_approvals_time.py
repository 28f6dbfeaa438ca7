"""Approvals that wait for days and weeks, on the time-skipping server, use no time of the run."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from datetime import timedelta

import pytest
from temporalio.service import RPCError
from temporalio.testing import WorkflowEnvironment

from orga.testing import FakeTool, answers, calls
from tests.support.parts.time_skipping import time_skipping
from tests.support.runs.approvals import Asks, approval_argument, wait_for_held_calls
from tests.support.runs.loop import Loop, a_loop
from tests.support.runs.questions import send_update, tool_results_in

DAY = timedelta(days=1)
WEEK = 7 * DAY


@pytest.fixture(scope="module")
async def environment() -> AsyncGenerator[WorkflowEnvironment]:
    async with time_skipping() as environment:
        yield environment


@asynccontextmanager
async def paying(environment: WorkflowEnvironment, expires: timedelta, pay: FakeTool) -> AsyncGenerator[Loop]:
    engine = Asks(expires_s=expires.total_seconds())
    steps = [calls("pay", "pay"), answers()]
    async with a_loop(environment.client, steps, pay, engine=engine) as loop:
        loop.execution_timeout = 8 * WEEK
        yield loop


async def test_a_call_approved_after_a_week_runs_and_the_week_does_not_count(
    environment: WorkflowEnvironment,
) -> None:
    pay = FakeTool("pay", effect="irreversible")
    async with paying(environment, 2 * WEEK, pay) as loop:
        handle = await loop.start()
        first, second = await wait_for_held_calls(handle, 2)
        await environment.sleep(WEEK / 2)
        await send_update(handle, "approve", approval_argument(first))
        await environment.sleep(WEEK / 2)
        assert (await handle.query("status"))["budgets"]["time_s"] > 290
        await send_update(handle, "approve", approval_argument(second))
        ran = await loop.ended(handle)
    assert (len(pay.contexts), tool_results_in(loop)) == (2, ["ok", "ok"])
    assert ran.result.termination.reason == "completed"
    assert ran.result.duration_s < 60


async def test_a_call_that_nobody_approves_for_days_is_denied_and_a_late_approval_refused(
    environment: WorkflowEnvironment,
) -> None:
    pay = FakeTool("pay", effect="irreversible")
    async with paying(environment, 3 * DAY, pay) as loop:
        handle = await loop.start()
        first, second = await wait_for_held_calls(handle, 2)
        await environment.sleep(2 * DAY)
        await send_update(handle, "approve", approval_argument(first))
        await environment.sleep(DAY)
        ran = await loop.ended(handle)
        with pytest.raises(RPCError, match=r"completed|not found"):
            await send_update(handle, "approve", approval_argument(second))
    assert len(pay.contexts) == 1
    assert tool_results_in(loop) == ["ok", "[Policy denied] not approved: nobody approved it in time"]
    resolved = [e.data for e in ran.journal if e.event == "ApprovalResolved" and e.data["kind"] == "call"]
    assert [(d["approved"], d["approver"]) for d in resolved] == [(True, "ada"), (False, "")]
