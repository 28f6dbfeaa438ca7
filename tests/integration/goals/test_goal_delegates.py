"""An agent carries out a step, and its delegate asks a person: interventions at the goal reach all three runs."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest
from temporalio.client import Client, WorkflowHandle

from orga.testing import FakeTool, answers, calls
from tests.support.hold import wait_until
from tests.support.model.goals import GoalModel, evaluation_reply, says
from tests.support.parts.time_skipping import time_skipping
from tests.support.runs.approvals import Asks, approval_argument, wait_for_held_calls
from tests.support.runs.delegates import Cast, a_cast, agent, delegates, result_of, status_of
from tests.support.runs.goals import EndedGoal, start, wait_for_goal
from tests.support.runs.long_runs import LONG, time_left
from tests.support.runs.loop import EXECUTION_TIMEOUT, check_replay, histories_of
from tests.support.runs.questions import send_update
from tests.support.runs.waits import wait_until_known, wait_until_paused

AGENTS = {"lead": agent("lead", "mate"), "mate": agent("mate", "hand"), "hand": agent("hand", tools=["pay"])}


BELOW = ("2.0", "2.0.1.0")
"""Place of the run that carries out the step, in the goal's second turn, and of the delegate that asks a person."""

PLAN = says(steps=[{"id": "a", "goal": "have it paid", "skill": "mate", "arguments": {"task": "pay it"}}])


@dataclass
class Three:
    """A goal, the agent that carries out its step, and the delegate that waits for approval."""

    handle: WorkflowHandle[Any, Any]
    below: list[WorkflowHandle[Any, Any]]
    cast: Cast
    model: GoalModel
    pay: FakeTool

    @property
    def all(self) -> list[WorkflowHandle[Any, Any]]:
        """The handles of all three runs."""
        return [self.handle, *self.below]

    async def approve(self) -> None:
        """Approve the call that the delegate holds."""
        [item] = await wait_for_held_calls(self.below[-1])
        await send_update(self.below[-1], "approve", approval_argument(item))

    async def end(self, client: Client) -> EndedGoal:
        """Wait for the end of all three runs, and replay the histories of the lower two."""
        pursued = await wait_for_goal(self.handle, client)
        for handle in self.below:
            for history in await histories_of(client, handle.id):
                await check_replay(history)
        return pursued


@asynccontextmanager
async def three(client: Client, execution_timeout: timedelta = EXECUTION_TIMEOUT) -> AsyncGenerator[Three]:
    """Start the three runs, and wait until the delegate asks."""
    model, pay = (
        GoalModel(plan=PLAN, evaluate=evaluation_reply("a"), decide=says(action="done", confidence=0.9)),
        FakeTool("pay"),
    )
    scripts = {
        "lead": model,
        "mate": [delegates("hand"), answers("all is done")],
        "hand": [calls("pay"), answers("paid")],
    }
    async with a_cast(client, AGENTS, scripts, pay, engine=Asks()) as (loop, cast):
        loop.execution_timeout = execution_timeout
        handle = await start(loop, agent="lead")
        below = [client.get_workflow_handle(f"{handle.id}.{place}") for place in BELOW]
        await wait_until_known(below[-1])
        await wait_for_held_calls(below[-1])
        yield Three(handle, below, cast, model, pay)


async def test_guidance_and_pause_reach_all_three_runs(client: Client) -> None:
    async with three(client) as goal:
        await goal.handle.signal("steer", "mind the gap")
        await goal.handle.signal("pause")
        for handle in goal.all:
            await wait_until(lambda handle=handle: has_received_guidance(handle, paused=True))
        await goal.approve()
        await wait_until_paused(goal.below[-1])
        assert goal.pay.contexts == []
        await goal.handle.signal("resume")
        pursued = await goal.end(client)
    assert (pursued.reason, len(goal.pay.contexts)) == ("completed", 1)
    for texts in (goal.cast.messages_to("hand"), goal.cast.messages_to("mate"), [goal.model.asked[-1][1]]):
        assert sum(text.count("mind the gap") for text in texts) == 1
    assert goal.model.turns == ["plan", "evaluate", "decide", "summary"]
    assert (pursued.result.tool_calls.delegated, pursued.result.steps[0].source) == (2, 'delegate "mate"')


async def has_received_guidance(handle: WorkflowHandle[Any, Any], *, paused: bool) -> bool:
    status = await status_of(handle)
    return (status.paused, len(status.unread_interventions)) == (paused, 1)


@pytest.mark.parametrize("act", ["abort", "cancel"])
async def test_an_end_of_the_goal_ends_all_three_runs_and_nothing_is_paid(client: Client, act: str) -> None:
    async with three(client) as goal:
        await (goal.handle.cancel() if act == "cancel" else goal.handle.signal("abort", "enough"))
        pursued = await goal.end(client)
        results = [await result_of(client, handle.id) for handle in goal.below]
    assert [result["termination"]["reason"] for result in results] == ["aborted", "aborted"]
    assert (pursued.reason, pursued.result.termination.detail) == (
        "aborted",
        "enough" if act == "abort" else "cancelled",
    )
    assert (goal.pay.contexts, pursued.result.steps[0].status) == ([], "failed")


async def test_the_model_calls_of_delegates_count_for_the_goal(client: Client) -> None:
    """The goal's own model calls and those of both runs below add up."""
    async with three(client) as goal:
        await goal.approve()
        pursued = await goal.end(client)
    assert pursued.reason == "completed"
    assert pursued.result.usage.model_calls == len(goal.model.asked) + len(
        goal.cast.seen("mate") + goal.cast.seen("hand")
    )


async def test_a_long_wait_inside_a_step_uses_no_time_of_the_goal() -> None:
    """The step has a limit of two minutes, the goal one of ten."""
    async with time_skipping() as environment, three(environment.client, LONG) as goal:
        await wait_until(lambda: is_held(goal.handle))
        before = await time_left(goal.handle)
        await environment.sleep(timedelta(minutes=50))
        assert await time_left(goal.handle) == before
        await goal.approve()
        pursued = await goal.end(environment.client)
    assert (pursued.reason, len(goal.pay.contexts), pursued.result.duration_s < 60) == ("completed", 1, True)


async def is_held(handle: WorkflowHandle[Any, Any]) -> bool:
    return any(child["held"] for child in (await handle.query("status"))["children"])
