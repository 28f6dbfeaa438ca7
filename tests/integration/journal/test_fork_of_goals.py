"""A fork of a goal continues from the end of a turn with everything found until then, and leaves the goal unchanged."""

from typing import Any

import pytest
from temporalio.client import Client

from orga.client.errors import OrgaError
from orga.client.history.chain import NoSuchIteration
from orga.client.past.fork import fork
from orga.client.proof.verify import verify
from orga.client.runs.agents import AgentHandle
from orga.client.runs.goals import GoalHandle
from orga.testing import FakeTool, answers
from orga.workflows.types.goals.pursuit import GoalResult
from orga.workflows.types.record import InvalidInput
from tests.support.model.goals import PARTIAL, GoalModel, a_step, evaluation_reply, says
from tests.support.runs import rewound
from tests.support.runs.delivered import a_hook, delivery_setup
from tests.support.runs.goals import EndedGoal, pursue, start, wait_for_goal
from tests.support.runs.loop import WORKER_FACTS, a_loop
from tests.support.runs.pipelines import TaskModel, a_pipeline, start_pipeline
from tests.support.runs.questions import wait_for_question
from tests.support.web.webhook_receiver import webhook_receiver

EACH_TURN = WORKER_FACTS.model_copy(update={"roll_over_events": 1})
DONE = says(action="done", confidence=0.9)


def a_model(**turns: Any) -> GoalModel:
    plan = says(steps=[a_step("a", at=1)])
    return GoalModel(**({"plan": plan, "evaluate": evaluation_reply("a"), "decide": DONE} | turns))


async def pursued_by(client: Client, run: AgentHandle) -> EndedGoal:
    """Wait for the end of a fork, and check what holds for every run."""
    ran = await rewound.wait_for_rewound(client, run)
    return EndedGoal(ran.raw, ran.journal)


@pytest.mark.parametrize("setup", [WORKER_FACTS, EACH_TURN], ids=["one run", "a chain of runs"])
@pytest.mark.parametrize(
    ("turn", "asked"),
    [
        pytest.param(0, ["plan", "evaluate", "summary"], id="before the plan"),
        pytest.param(1, ["evaluate", "summary"], id="after the plan"),
        pytest.param(2, ["evaluate", "summary"], id="after the calls"),
        pytest.param(3, ["summary"], id="after the scores"),
    ],
)
async def test_a_fork_asks_the_model_only_for_turns_that_it_does_not_share(
    client: Client, turn: int, asked: list[str], setup: Any
) -> None:
    """The turns are plan, calls of the plan, scores and answer. The fork makes its own calls."""
    look = FakeTool("look", effect="idempotent")
    model = a_model(summary=[answers("first"), answers("second")])
    async with a_loop(client, model, look, setup=setup) as loop:
        handle = await start(loop)
        first = await wait_for_goal(handle, client)
        before = len(model.asked)
        run = await fork(client, handle.id, turn)
        second = await pursued_by(client, run)
        assert (await verify(client, run.id)).ok
        assert GoalResult.model_validate(await handle.result()).output == "first"
    assert model.turns[before:] == asked
    assert model.asked[-1][1] == model.asked[before - 1][1]
    assert (first.result.output, second.result.output) == ("first", "second")
    assert (second.reason, second.result.plan, second.result.rounds) == ("completed", ("a",), 1)
    assert second.result.usage.model_calls == first.result.usage.model_calls
    keys = [context.idempotency_key for context in look.contexts]
    assert len(set(keys)) == len(keys) == (2 if turn < 2 else 1)
    assert isinstance(run, GoalHandle)
    assert run.id.startswith("goal-")
    assert second.journal[0].data["forked_from"]["iteration"] == turn
    assert second.journal[0].data["task"] == "find out"


async def test_an_answered_goal_continues_with_a_further_task(client: Client) -> None:
    """It remains the same goal: the new task is guidance, and the model decides with it."""
    decisions = [DONE, says(action="adjust", confidence=0.5, steps=[a_step("b", at=2)]), DONE]
    model = a_model(
        evaluate=[evaluation_reply("a", **PARTIAL), evaluation_reply("b")],
        decide=decisions,
        summary=[answers("first"), answers("second")],
    )
    async with a_loop(client, model, FakeTool("look")) as loop:
        handle = await start(loop)
        first = await wait_for_goal(handle, client)
        last = first.result.iterations
        with pytest.raises(OrgaError, match="give the fork a --task"):
            await fork(client, handle.id, last)
        second = await pursued_by(client, await fork(client, handle.id, last, task="look at 2, too"))
    assert (second.result.output, second.result.plan, second.reason) == ("second", ("a", "b"), "completed")
    assert "[Guidance from the operator] look at 2, too" in model.asked[4][1]
    assert second.journal[0].data["guidance"] == "look at 2, too"


async def test_a_fork_of_an_ended_goal_can_raise_the_limit_that_ended_it(client: Client) -> None:
    plan = says(steps=[a_step("a", at=1), a_step("b", "look", "a", at=2)])
    model = a_model(
        plan=plan,
        evaluate=[evaluation_reply("a"), evaluation_reply("b")],
        summary=[answers("first"), answers("second")],
    )
    async with a_loop(client, model, FakeTool("look")) as loop:
        handle = await start(loop, max_iterations=1)
        first = await wait_for_goal(handle, client)
        run = await fork(client, handle.id, first.result.iterations, changes={"config": {"max_iterations": 3}})
        second = await pursued_by(client, run)
    assert (first.reason, first.result.plan) == ("max_iterations", ("a", "b"))
    assert (second.reason, second.result.rounds, second.result.output) == ("completed", 2, "second")
    assert [step.status for step in second.result.steps] == ["done", "done"]


async def test_settings_of_a_fork_override_the_old_ones_and_the_rest_stays(client: Client) -> None:
    with webhook_receiver() as receiver:
        channels = {"hook": a_hook(receiver)}
        setup = delivery_setup(default=False, hook="webhook")
        async with a_loop(client, a_model(), FakeTool("look"), setup=setup, deliveries=channels) as loop:
            handle = await start(loop, max_llm_calls=20, plan_review="always")
            await wait_for_question(handle)
            await handle.signal("abort")
            await wait_for_goal(handle, client)
            changes = {"deliver": ["hook"], "config": {"plan_review": "never"}}
            run = await fork(client, handle.id, 1, changes=changes)
            second = await pursued_by(client, run)
    assert second.reason == "completed"
    assert second.journal[0].data["input"]["config"]["max_model_calls"] == 20
    assert [(each.name, each.status) for each in second.result.deliveries] == [("hook", "delivered")]


async def test_a_plan_without_approval_is_not_approved_in_a_fork_either(client: Client) -> None:
    look = FakeTool("look")
    async with a_loop(client, a_model(), look) as loop:
        handle = await start(loop, plan_review="always")
        await wait_for_question(handle)
        await handle.signal("abort")
        first = await wait_for_goal(handle, client)
        run = await fork(client, handle.id, first.result.iterations)
        asked = await wait_for_question(client.get_workflow_handle(run.id))
        assert "a (look): do a" in asked["question"]
        assert look.contexts == []
        await run.answer("yes")
        second = await pursued_by(client, run)
    assert (second.reason, len(look.contexts)) == ("completed", 1)


async def test_an_unreviewed_plan_is_reviewed_in_a_fork_that_requires_it(client: Client) -> None:
    look = FakeTool("look")
    plan = says(steps=[a_step("a", at=1), a_step("b", "look", "a", at=2)])
    async with a_loop(
        client, a_model(plan=plan, evaluate=[evaluation_reply("a"), evaluation_reply("b")]), look
    ) as loop:
        handle = await start(loop)
        await wait_for_goal(handle, client)
        run = await fork(client, handle.id, 3, changes={"config": {"plan_review": "always"}})
        asked = await wait_for_question(client.get_workflow_handle(run.id))
        await run.answer("yes")
        second = await pursued_by(client, run)
    assert ("b (look" in asked["question"], "a (look" in asked["question"]) == (True, False)
    assert (second.reason, len(look.contexts)) == ("completed", 3)


async def test_invalid_settings_start_no_fork(client: Client) -> None:
    async with a_loop(client, a_model(), FakeTool("look")) as loop:
        await pursue(loop)
        handle = await start(loop)
        await wait_for_goal(handle, client)
        with pytest.raises(InvalidInput, match=r"config\.max_model_calls: unknown key"):
            await fork(client, handle.id, 1, changes={"config": {"max_model_calls": 3}})
        with pytest.raises(InvalidInput, match="instructions: unknown key"):
            await fork(client, handle.id, 1, changes={"instructions": "Be brief."})
        with pytest.raises(NoSuchIteration):
            await fork(client, handle.id, 9)


async def test_a_fork_of_a_pipeline_continues_with_the_results_of_its_steps(client: Client) -> None:
    finder, writer = TaskModel(lambda _: "found: forty-two"), TaskModel(lambda _: "It is 42.")
    chain = {"kind": "chain", "steps": ["finder", "writer"]}
    async with a_pipeline(client, chain, {"finder": finder, "writer": writer}) as (loop, _, _):
        handle = await start_pipeline(loop)
        await wait_for_goal(handle, client)
        second = await pursued_by(client, await fork(client, handle.id, 1))
    assert (second.reason, second.result.output) == ("completed", "It is 42.")
    assert (len(finder.tasks), ["found: forty-two" in task for task in writer.tasks]) == (1, [True, True])
