"""A rewound goal continues from the end of an earlier turn; its later plans, steps and questions no longer count."""

from typing import Any

from temporalio.client import Client, WorkflowHandle

from orga.client.past.rewind import plan_rewind, rewind
from orga.client.proof.verify import verify
from orga.client.runs.goals import GoalHandle
from orga.testing import FakeTool
from tests.support.model.goals import BAD, PARTIAL, GoalModel, a_step, evaluation_reply, says
from tests.support.runs import rewound
from tests.support.runs.goals import EndedGoal, answer_goal, start, wait_for_goal
from tests.support.runs.loop import WORKER_FACTS, a_loop
from tests.support.runs.questions import wait_for_question

EACH_TURN = WORKER_FACTS.model_copy(update={"roll_over_events": 1})


def a_model(**turns: Any) -> GoalModel:
    plan = says(steps=[a_step("a", at=1)])
    return GoalModel(
        **({"plan": plan, "evaluate": evaluation_reply("a"), "decide": says(action="done", confidence=0.9)} | turns)
    )


def rewinds(pursued: EndedGoal) -> list[dict[str, Any]]:
    reported = [entry.data for entry in pursued.journal if entry.event == "InterventionReceived"]
    return [data for data in reported if data["kind"] == "rewind"]


async def after_rewind(client: Client, handle: WorkflowHandle[Any, Any]) -> EndedGoal:
    """Wait for the end of a rewound goal. The reset is in its history as a failed task."""
    ran = await rewound.wait_for_rewound(client, GoalHandle(client, handle.id))
    return EndedGoal(ran.raw, ran.journal)


async def test_an_ended_goal_decides_again_with_the_guidance(client: Client) -> None:
    model = a_model(
        evaluate=[evaluation_reply("a", **PARTIAL), evaluation_reply("b")],
        decide=[
            says(action="done", confidence=0.9),
            says(action="adjust", confidence=0.5, steps=[a_step("b", at=2)]),
        ],
        summary=[says(first=1), says(second=2)],
    )
    async with a_loop(client, model, FakeTool("look")) as loop:
        handle = await start(loop)
        first = await wait_for_goal(handle, client)
        await rewind(client, handle.id, 3, steer="look at 2")
        second = await after_rewind(client, handle)
        assert (await verify(client, handle.id)).ok
    assert (first.result.output, second.result.output) == ('{"first":1}', '{"second":2}')
    assert (first.result.plan, second.result.plan) == (("a",), ("a", "b"))
    assert "[Guidance from the operator] look at 2" in model.asked[4][1]
    assert "look at 2" in str(rewinds(second))


async def test_turn_0_is_before_the_plan(client: Client) -> None:
    model = a_model(
        plan=[says(steps=[a_step("a", at=1)]), says(steps=[a_step("b", at=2)])],
        evaluate=[evaluation_reply("a"), evaluation_reply("b")],
    )
    async with a_loop(client, model, FakeTool("look")) as loop:
        handle = await start(loop)
        await wait_for_goal(handle, client)
        plan = await plan_rewind(client, handle.id, 0)
        await rewind(client, handle.id, 0)
        second = await after_rewind(client, handle)
    assert not plan.is_at_the_answer
    assert second.result.plan == ("b",)
    assert second.reason == "completed"


async def test_a_question_after_the_rewind_point_is_no_longer_asked(client: Client) -> None:
    model = a_model(
        evaluate=[evaluation_reply("a", **BAD), evaluation_reply("a")],
        decide=[says(action="ask_user", question="Which year?", confidence=0.9), says(action="done", confidence=0.9)],
    )
    async with a_loop(client, model, FakeTool("look"), setup=EACH_TURN) as loop:
        handle = await start(loop)
        await wait_for_question(handle)
        await rewind(client, handle.id, 2)
        second = await after_rewind(client, handle)
    assert second.reason == "completed"
    assert "QuestionAsked" not in second.events[second.events.index("InterventionReceived") :]


async def test_the_effects_after_the_rewind_point_are_named(client: Client) -> None:
    save = FakeTool("look", effect="irreversible")
    async with a_loop(client, a_model(), save) as loop:
        handle = await start(loop)
        await wait_for_goal(handle, client)
        plan = await plan_rewind(client, handle.id, 1)
    assert [effect.tool for effect in plan.effects] == ["look"]
    assert len(plan.irreversible_calls) == 1


async def test_an_answer_after_the_rewind_point_is_dropped_with_its_question(client: Client) -> None:
    ask = says(action="ask_user", question="Which year?", confidence=0.9)
    model = a_model(
        evaluate=evaluation_reply("a", **PARTIAL),
        decide=[ask, says(action="done", confidence=0.9), says(action="done", confidence=0.9)],
    )
    async with a_loop(client, model, FakeTool("look")) as loop:
        handle = await start(loop)
        await wait_for_question(handle)
        await answer_goal(handle, "1999")
        await wait_for_goal(handle, client)
        await rewind(client, handle.id, 3, keep_interventions=False)
        second = await after_rewind(client, handle)
    assert second.reason == "completed"
    assert "1999" not in model.asked[-1][1]
