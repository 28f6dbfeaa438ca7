"""Unusable plans of a model, on a real server: the model reads what is wrong, and three in a row end the goal."""

from temporalio.client import Client

from orga.testing import FakeTool, answers, calls
from tests.support.model.goals import GoalModel, a_step, evaluation_reply, says
from tests.support.runs.goals import pursue
from tests.support.runs.loop import a_loop


async def test_the_model_reads_what_is_wrong_with_its_plan_and_makes_another(client: Client) -> None:
    circle = says(steps=[a_step("a", "fly"), a_step("b", "look", "c"), a_step("c", "look", "b")])
    fine = says(steps=[a_step("a", at=1)])
    model = GoalModel(plan=[answers("I would look first."), circle, fine], evaluate=evaluation_reply("a"))
    async with a_loop(client, model, FakeTool("look")) as loop:
        pursued = await pursue(loop)
    assert pursued.reason == "completed"
    second, third = (text for _, text in model.asked[1:3])
    assert "give one JSON object" in second
    assert "skill 'fly' is none of look" in third
    assert "goes round in a circle" in third


async def test_a_plan_is_read_in_any_form_and_its_arguments_are_checked(client: Client) -> None:
    schema = {"type": "object", "properties": {"at": {"type": "integer"}}, "required": ["at"]}
    wrong = 'Here: ```json\n{"steps": [{"id": "a", "goal": "g", "skill": "look", "arguments": {"at": "x"}},]}\n```'
    fine = answers('Use {curly} things: [{"id": 1, "goal": "g", "skill": "look", "arguments": "{\\"at\\": 1}"}]')
    model = GoalModel(plan=[calls("look"), answers(wrong), fine], evaluate=evaluation_reply("1"))
    look = FakeTool("look", parameters=schema)
    async with a_loop(client, model, look) as loop:
        pursued = await pursue(loop)
    assert (pursued.reason, len(look.contexts)) == ("completed", 1)
    assert "you called look, and this turn takes no calls: none was made" in model.asked[1][1]
    assert "a: arguments: $.at" in model.asked[2][1]


async def test_three_unusable_plans_end_the_goal_as_stuck(client: Client) -> None:
    async with a_loop(client, GoalModel(plan=answers("no")), FakeTool("look")) as loop:
        pursued = await pursue(loop)
    assert (pursued.reason, pursued.result.confidence, pursued.result.rounds) == ("stuck", 0.0, 0)
    assert "3 replies in a row" in pursued.result.termination.detail
