"""Goals that wait for days, on the time-skipping server: waits for people and pauses use no time of the goal."""

from collections.abc import AsyncGenerator
from datetime import timedelta
from typing import Any

import pytest
from temporalio.client import Client, WorkflowHandle
from temporalio.testing import WorkflowEnvironment

from orga.testing import FakeTool
from tests.support.hold import wait_until
from tests.support.model.goals import BAD, GoalModel, a_step, evaluation_reply, says
from tests.support.model.staged import QUESTION, TURNS, StagedModel
from tests.support.parts.time_skipping import time_skipping
from tests.support.runs.goals import EndedGoal, answer_goal, goal_status, start, wait_for_goal
from tests.support.runs.long_runs import DAY, LONG, time_left
from tests.support.runs.loop import WORKER_FACTS, a_loop, histories_of
from tests.support.runs.questions import send_update, wait_for_question
from tests.support.runs.waits import wait_until_paused


@pytest.fixture(scope="module")
async def environment() -> AsyncGenerator[WorkflowEnvironment]:
    async with time_skipping() as environment:
        yield environment


def took(pursued: EndedGoal) -> timedelta:
    """Return the time from the first entry of the journal to the last, waits included."""
    return pursued.journal[-1].timestamp - pursued.journal[0].timestamp


ASKING: dict[str, Any] = {
    "plan": says(steps=[a_step("a")]),
    "evaluate": evaluation_reply("a", **BAD),
    "decide": [says(action="ask_user", question=QUESTION, confidence=0.9), says(action="done", confidence=0.8)],
}


async def wait_for_the_question(handle: WorkflowHandle[Any, Any]) -> dict[str, Any]:
    """Wait for the question of a goal."""
    wait = await wait_for_question(handle)
    assert wait["question"] == QUESTION
    return wait


async def test_a_question_answered_after_five_days_uses_no_budget(environment: WorkflowEnvironment) -> None:
    """The goal has a limit of ten minutes."""
    async with a_loop(environment.client, GoalModel(**ASKING), FakeTool("look")) as loop:
        loop.execution_timeout = LONG
        handle = await start(loop)
        await wait_for_the_question(handle)
        before = await time_left(handle)
        assert before <= 600
        await environment.sleep(5 * DAY)
        assert await time_left(handle) == before
        spent = (await goal_status(handle))["budgets"]
        await answer_goal(handle, "1999")
        pursued = await wait_for_goal(handle, environment.client)
    assert (pursued.reason, pursued.result.duration_s < 60) == ("completed", True)
    assert took(pursued) > 5 * DAY
    assert spent["model_calls"] == 60 - 3  # plan, evaluate, decide: the question itself uses no call


async def test_pauses_of_days_use_no_time_even_during_a_question(environment: WorkflowEnvironment) -> None:
    """The goal is paused while it asks, answered a day later, and resumed another day later."""
    model = GoalModel(**ASKING)
    async with a_loop(environment.client, model, FakeTool("look")) as loop:
        loop.execution_timeout = LONG
        handle = await start(loop)
        await wait_for_the_question(handle)
        before = await time_left(handle)
        await handle.signal("pause")
        await environment.sleep(DAY)
        await answer_goal(handle, "1999")
        await wait_until_paused(handle)
        await environment.sleep(DAY)
        assert model.turns == ["plan", "evaluate", "decide"]
        assert before - await time_left(handle) < 60
        await handle.signal("resume")
        pursued = await wait_for_goal(handle, environment.client)
    assert (pursued.reason, pursued.result.duration_s < 60) == ("completed", True)
    assert took(pursued) > 2 * DAY


@pytest.mark.parametrize("place", ["plan", "execute", "evaluate", "compress", "decide", "summary"])
async def test_a_pause_in_any_state_uses_no_time(environment: WorkflowEnvironment, place: str) -> None:
    """A goal has 20 minutes for its plan of three steps, and five minutes until it has a plan."""
    model = StagedModel()
    async with a_loop(environment.client, model, FakeTool("look", model.look)) as loop:
        loop.execution_timeout = LONG
        staged = model.stage(workflow_id := f"goal-{loop.task_queue}", place)
        handle = await start(loop, workflow_id=workflow_id)
        if place == "summary":
            await wait_for_the_question(handle)
            await answer_goal(handle, "1999")
        await staged.hold.reached()
        await handle.signal("pause")
        staged.hold.go.set()
        await wait_until_paused(handle)
        await environment.sleep(DAY)
        await handle.signal("resume")
        if place != "summary":
            await wait_for_the_question(handle)
            await answer_goal(handle, "1999")
        pursued = await wait_for_goal(handle, environment.client)
    assert (pursued.reason, staged.turns, len(set(staged.keys))) == ("completed", TURNS, 3)
    assert pursued.result.duration_s < 60
    assert took(pursued) > DAY


async def test_an_abort_after_days_returns_the_findings(environment: WorkflowEnvironment) -> None:
    look = FakeTool("look", lambda arguments, _: "the treasure")
    model = GoalModel(
        **{**ASKING, "evaluate": evaluation_reply("a", relevance=3, completeness=3, usability=3, goal_progress=3)}
    )
    async with a_loop(environment.client, model, look) as loop:
        loop.execution_timeout = LONG
        handle = await start(loop)
        await wait_for_the_question(handle)
        await environment.sleep(5 * DAY)
        await handle.signal("abort", "nobody came back")
        pursued = await wait_for_goal(handle, environment.client)
    assert (pursued.reason, pursued.result.termination.detail) == ("aborted", "nobody came back")
    assert "the treasure" in pursued.result.output


async def test_a_question_about_a_limit_waits_for_days(environment: WorkflowEnvironment) -> None:
    """The goal reaches its only round. A person who comes back after three days grants another one."""
    plan = says(steps=[a_step("a", at=1), a_step("b", "look", "a", at=2)])
    model = GoalModel(plan=plan, evaluate=[evaluation_reply("a"), evaluation_reply("b")])
    async with a_loop(environment.client, model, FakeTool("look")) as loop:
        loop.execution_timeout = LONG
        handle = await start(loop, max_iterations=1, on_exhausted="ask")
        wait = await wait_for_question(handle)
        before = await time_left(handle)
        await environment.sleep(3 * DAY)
        assert (wait["kind"], await time_left(handle)) == ("budget", before)
        await send_update(handle, "extend_budget", {"max_iterations": 2})
        pursued = await wait_for_goal(handle, environment.client)
    assert (pursued.reason, pursued.result.rounds) == ("completed", 2)
    assert took(pursued) > 3 * DAY


async def test_a_question_keeps_its_id_and_start_across_continue_as_new(client: Client) -> None:
    """Signals fill the history, so the run continues as new while it asks.

    This needs the server with real time: the time-skipping server sometimes loses a task on continue-as-new.
    """
    facts = WORKER_FACTS.model_copy(update={"roll_over_events": 40})
    model = GoalModel(**ASKING)
    async with a_loop(client, model, FakeTool("look"), setup=facts) as loop:
        handle = await start(loop)
        first, began = await wait_for_the_question(handle), (await handle.describe()).run_id
        before = await time_left(handle)

        async def is_another() -> bool:
            await handle.signal("resume")  # resume carries no text: guidance would close the question
            return (await handle.describe()).run_id != began

        await wait_until(is_another)
        second = await wait_for_the_question(handle)
        assert (second["wait_id"], second["since"]) == (first["wait_id"], first["since"])
        assert before - await time_left(handle) < 60
        assert await answer_goal(handle, "1999") == first["wait_id"]
        pursued = await wait_for_goal(handle, client)
        runs = await histories_of(client, handle.id)
    assert (pursued.reason, len(runs) > 1, pursued.result.duration_s < 60) == ("completed", True, True)
    assert pursued.events.count("QuestionAsked") == pursued.events.count("QuestionAnswered") == 1


async def test_a_plan_that_never_arrives_ends_the_goal_after_the_time_of_one_step(client: Client) -> None:
    """This needs the server with real time: the time-skipping server does not advance during a model call."""
    model = StagedModel()
    async with a_loop(client, model, FakeTool("look", model.look)) as loop:
        staged = model.stage(workflow_id := f"goal-{loop.task_queue}", "plan")
        handle = await start(loop, workflow_id=workflow_id, step_budget_s=3)
        pursued = await wait_for_goal(handle, client)
    assert (pursued.reason, pursued.result.termination.detail) == ("timeout", "limit of 3 s")
    assert (staged.turns, staged.hold.cancelled.is_set()) == (["plan"], True)
