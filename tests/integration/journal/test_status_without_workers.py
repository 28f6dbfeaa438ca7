"""The status of a goal without any worker: its history gives plan, scores and question."""

import asyncio
from typing import Any

from temporalio.client import Client

from orga.client.cli.inspect.status import HistoryStatus, history_status
from orga.client.journal.reading import read_journal
from orga.client.runs.goals import GoalHandle
from orga.testing import FakeTool
from tests.support.model.goals import GoalModel, a_step, evaluation_reply, says
from tests.support.runs.goals import goal_status, start, wait_for_goal
from tests.support.runs.loop import a_loop
from tests.support.runs.questions import wait_for_question

FAIR = {"relevance": 3, "completeness": 3, "usability": 3, "goal_progress": 3}


async def of_history(client: Client, run_id: str) -> HistoryStatus:
    return await history_status(read_journal(client, run_id))


def plan_fields(plan: dict[str, Any] | None) -> tuple[object, ...]:
    """Return the fields of a plan that both sources report."""
    assert plan is not None
    keys = ("id", "skill", "goal", "status", "score", "error", "output")
    steps = [tuple(step.get(key) or "" for key in keys) for step in plan["steps"]]
    return plan["rounds"], plan["trend"], plan["average"], plan["slope"], steps


async def test_the_status_from_history_equals_that_of_the_live_goal(client: Client) -> None:
    """The goal has three rounds, a failed step and a changed plan. Then a person inserts a step."""

    def fall(arguments: dict[str, Any], _: Any) -> str:
        raise ValueError("fell down")

    steps = [a_step("a"), a_step("b", "fall"), a_step("z", "look", "a")]
    model = GoalModel(
        plan=says(steps=steps),
        evaluate=[
            evaluation_reply("a", **FAIR),
            evaluation_reply("c"),
            evaluation_reply("d"),
            evaluation_reply("operator-1"),
        ],
        decide=[
            says(action="adjust", confidence=0.5, steps=[a_step("c"), a_step("d", "look", "c")]),
            says(action="ask_user", question="Which year?", confidence=0.9),
            says(action="done", confidence=0.9),
        ],
    )
    async with a_loop(client, model, FakeTool("look"), FakeTool("fall", fall)) as loop:
        handle = await start(loop)
        await wait_for_question(handle)
        shown, live = await of_history(client, handle.id), await goal_status(handle)
        assert plan_fields(shown.plan) == plan_fields(live["plan"])
        [question] = live["waiting"]
        assert shown.json_fields()["waiting"] == [
            {"kind": "answer", "id": question["wait_id"], "question": "Which year?"}
        ]
        lines = shown.lines()
        assert "round      3" in lines
        assert "step       ✓ a look: do a  3.00 partial" in lines
        assert any(line.startswith("step       ✗ b fall: do b  ") for line in lines)
        assert "step       ✓ d look: do d  4.25 good" in lines
        assert any(line.startswith("scores     improving (+") for line in lines)
        assert f"waits      answer {question['wait_id']}: Which year?" in lines

        await handle.signal("pause")  # a step override closes the question, and would be carried out at once
        await GoalHandle(client, handle.id).override_step("look", {"at": 7})
        overridden = await asyncio.wait_for(_with_step(client, handle.id, "set by a person"), 30)
        assert overridden["status"] == "open"
        await handle.signal("resume")
        pursued = await wait_for_goal(handle, client)
    after = await of_history(client, handle.id)
    assert after.plan is not None
    assert (after.run.questions, after.plan["rounds"]) == ({}, pursued.result.rounds)
    assert [(step["id"], step["status"]) for step in after.plan["steps"]] == [
        (step.id, step.status) for step in pursued.result.steps
    ]


async def _with_step(client: Client, run_id: str, goal: str) -> dict[str, Any]:
    """Wait for the step in the journal, which a worker has yet to record."""
    while True:
        plan = (await of_history(client, run_id)).plan or {"steps": []}
        if found := [step for step in plan["steps"] if step["goal"] == goal]:
            return found[0]
        await asyncio.sleep(0.05)


async def test_a_goal_without_a_plan_has_none_in_its_status(client: Client) -> None:
    """Its status shows iterations, as that of an agent's run does."""
    model = GoalModel(plan=says(error="no way"))
    async with a_loop(client, model, FakeTool("look")) as loop:
        handle = await start(loop)
        await wait_for_goal(handle, client)
    told_of = await of_history(client, handle.id)
    assert (told_of.plan, "plan" in told_of.json_fields()) == (None, False)
    assert any(line.startswith("iteration  ") for line in told_of.lines())
