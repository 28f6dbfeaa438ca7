"""Limits that people raise while the final answer is being written: the goal continues under the new limit."""

from typing import Any

import pytest
from temporalio.client import Client

from orga.testing import FakeTool
from tests.support.model.staged import StagedModel
from tests.support.runs.goals import answer_goal, start, wait_for_goal
from tests.support.runs.loop import a_loop
from tests.support.runs.questions import send_update, wait_for_question


@pytest.mark.parametrize(
    ("config", "raised", "rounds"),
    [
        pytest.param({"max_iterations": 1}, {"max_iterations": 15}, 1, id="rounds"),
        pytest.param({"max_llm_calls": 4}, {"max_model_calls": 60}, 2, id="model calls"),
    ],
)
async def test_a_limit_raised_while_the_answer_is_written_lets_the_goal_continue(
    client: Client, config: dict[str, Any], raised: dict[str, int], rounds: int
) -> None:
    model = StagedModel()
    async with a_loop(client, model, FakeTool("look", model.look)) as loop:
        staged = model.stage(workflow_id := f"goal-{loop.task_queue}", "summary")
        handle = await start(loop, workflow_id=workflow_id, **config)
        await staged.hold.reached()
        assert len(staged.keys) >= rounds
        await send_update(handle, "extend_budget", raised)
        staged.hold.go.set()
        await wait_for_question(handle)
        await answer_goal(handle, "1999")
        pursued = await wait_for_goal(handle, client)
    assert (pursued.reason, pursued.result.rounds, len(set(staged.keys))) == ("completed", 3, 3)
    assert (staged.turns.count("plan"), staged.turns.count("summary")) == (1, 2)


async def test_a_limit_raised_too_little_still_ends_the_goal(client: Client) -> None:
    model = StagedModel()
    async with a_loop(client, model, FakeTool("look", model.look)) as loop:
        staged = model.stage(workflow_id := f"goal-{loop.task_queue}", "summary")
        handle = await start(loop, workflow_id=workflow_id, max_llm_calls=4)
        await staged.hold.reached()
        await send_update(handle, "extend_budget", {"max_model_calls": 5})
        staged.hold.go.set()
        pursued = await wait_for_goal(handle, client)
    assert (pursued.reason, pursued.result.output) == ("max_iterations", "the final answer")
    assert staged.turns.count("summary") == 1
