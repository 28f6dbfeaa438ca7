"""People guide running pipelines, change them, and answer their questions."""

import asyncio

from temporalio.client import Client

from orga.testing import FakeTool, answers
from tests.support.hold import wait_until
from tests.support.model.goals import GoalModel
from tests.support.runs.approvals import Asks, approval_argument, wait_for_held_calls
from tests.support.runs.goals import answer_goal, goal_status, wait_for_goal
from tests.support.runs.loop import WORKER_FACTS
from tests.support.runs.pipelines import CHAIN, TaskModel, WaitingTaskModel, a_pipeline, start_pipeline


async def test_guidance_reaches_the_working_agent_and_each_later_step(client: Client) -> None:
    finder, writer = WaitingTaskModel(lambda _: "found"), TaskModel(lambda _: "the answer")
    async with a_pipeline(client, CHAIN, {"finder": finder, "writer": writer}) as (loop, _, model):
        handle = await start_pipeline(loop)
        await asyncio.wait_for(finder.began.wait(), 30)
        await handle.signal("steer", "mind the gap")
        child = client.get_workflow_handle(f"{handle.id}.1.0")

        async def has_received_guidance() -> bool:
            return bool((await child.query("status"))["unread_interventions"])

        await wait_until(has_received_guidance)
        finder.go.set()
        pursued = await wait_for_goal(handle, client)
    assert (pursued.reason, pursued.result.output, model.turns) == ("completed", "the answer", [])
    assert writer.tasks[0].count("mind the gap") == 1
    assert "From the operator:\nmind the gap" in writer.tasks[0]


async def test_guidance_after_the_last_step_makes_the_model_write_the_answer(client: Client) -> None:
    writer = WaitingTaskModel(lambda _: "the answer")
    model = GoalModel(summary=answers("the answer, in short"))
    async with a_pipeline(client, CHAIN, {"finder": TaskModel(lambda _: "found"), "writer": writer}, model=model) as (
        loop,
        _,
        _,
    ):
        handle = await start_pipeline(loop)
        await asyncio.wait_for(writer.began.wait(), 30)
        await handle.signal("steer", "be short")
        writer.go.set()
        pursued = await wait_for_goal(handle, client)
    assert (pursued.reason, pursued.result.output) == ("completed", "the answer, in short")
    assert model.turns == ["summary"]
    assert "be short" in model.asked[0][1]
    assert "the answer" in model.asked[0][1]


async def test_a_step_override_replaces_the_due_step(client: Client) -> None:
    finder, writer = WaitingTaskModel(lambda _: "found"), TaskModel(lambda _: "never")
    look = FakeTool("look", lambda arguments, _: f"seen {arguments['at']}")
    async with a_pipeline(client, CHAIN, {"finder": finder, "writer": writer}, look) as (loop, _, _):
        handle = await start_pipeline(loop)
        await asyncio.wait_for(finder.began.wait(), 30)
        await handle.signal("override_step", {"skill": "look", "input": {"at": 7}})
        finder.go.set()
        pursued = await wait_for_goal(handle, client)
    assert (pursued.reason, len(look.contexts), writer.tasks) == ("completed", 1, [])
    assert [step.skill for step in pursued.result.steps] == ["finder", "look"]


async def test_a_plan_under_review_waits_for_approval(client: Client) -> None:
    finder = TaskModel(lambda _: "found")
    async with a_pipeline(client, CHAIN, {"finder": finder, "writer": TaskModel(lambda _: "the answer")}) as (
        loop,
        _,
        _,
    ):
        handle = await start_pipeline(loop, plan_review="always")

        async def is_asked() -> bool:
            return bool((await goal_status(handle))["question"])

        await wait_until(is_asked)
        assert finder.tasks == []
        await answer_goal(handle, "yes")
        pursued = await wait_for_goal(handle, client)
    assert (pursued.reason, pursued.result.output) == ("completed", "the answer")


async def test_a_held_step_keeps_its_approval_across_continue_as_new(client: Client) -> None:
    """The held reply contains all tasks of the round, and the next segment carries out exactly these."""
    facts = WORKER_FACTS.model_copy(update={"roll_over_events": 40})
    finder = TaskModel(lambda _: "found")
    agents = {"finder": finder, "writer": TaskModel(lambda _: "the answer")}
    async with a_pipeline(client, CHAIN, agents, engine=Asks(("delegate",)), setup=facts) as (loop, _, _):
        handle = await start_pipeline(loop)
        first = (await handle.describe()).run_id
        [before] = await wait_for_held_calls(handle)
        for number in range(30):
            await handle.signal("steer", f"hint {number}")
        handle = client.get_workflow_handle(handle.id)

        async def is_another() -> bool:
            return (await handle.describe()).run_id != first

        await wait_until(is_another)
        [now] = await wait_for_held_calls(handle)
        assert (now["approval_id"], finder.tasks) == (before["approval_id"], [])
        await handle.execute_update("approve", approval_argument(now))  # pyright: ignore[reportUnknownMemberType]

        async def is_next() -> bool:
            held = await wait_for_held_calls(handle)
            return bool(held) and held[0]["approval_id"] != now["approval_id"]

        await wait_until(is_next)
        await handle.execute_update("approve", approval_argument((await wait_for_held_calls(handle))[0]))  # pyright: ignore[reportUnknownMemberType]
        pursued = await wait_for_goal(handle, client)
    assert pursued.reason == "completed"
    assert [step.attempts for step in pursued.result.steps] == [1, 1]
