"""Goals with pipelines continue as new, are forked, scored and shown like any goal."""

import pytest
from temporalio.client import Client, WorkflowFailureError

from orga.client.cli.inspect.steps import phase_table
from orga.client.errors import NoPrompt
from orga.client.history.steps import read_prompt
from orga.client.journal.phases import goal_phases
from orga.client.journal.reading import read_journal
from orga.client.past.fork import fork
from orga.client.runs.goals import start_goal
from tests.support.model.goals import GoalModel, evaluation_reply
from tests.support.runs import rewound
from tests.support.runs.goals import wait_for_goal
from tests.support.runs.loop import WORKER_FACTS, histories_of
from tests.support.runs.pipelines import CHAIN, LEAD, SURVEY, TaskModel, a_pipeline, run_pipeline, start_pipeline


async def test_steps_are_scored_by_the_model_of_the_goal_if_configured(client: Client) -> None:
    model = GoalModel(evaluate=[evaluation_reply("step-1"), evaluation_reply("step-2")])
    agents = {"finder": TaskModel(lambda _: "found"), "writer": TaskModel(lambda _: "the answer")}
    async with a_pipeline(client, {**CHAIN, "evaluate": True}, agents, model=model) as (loop, _, _):
        pursued = await run_pipeline(loop)
    assert (pursued.reason, pursued.result.output) == ("completed", "the answer")
    assert model.turns == ["evaluate", "evaluate"]
    assert pursued.result.confidence > 0.7


async def test_a_long_pipeline_keeps_its_results_across_continue_as_new(client: Client) -> None:
    facts = WORKER_FACTS.model_copy(update={"roll_over_events": 30})
    reader = TaskModel(lambda task: f"read {next(each for each in 'abcde' if f'{each}.md' in task)}")
    editor = TaskModel(lambda _: "all of it")
    async with a_pipeline(client, SURVEY, {"reader": reader, "editor": editor}, setup=facts) as (loop, _, _):
        pursued_by = await start_pipeline(loop, inputs=[f"{each}.md" for each in "abcde"], max_parallel_steps=1)
        pursued = await wait_for_goal(pursued_by, client)
        runs = await histories_of(client, pursued_by.id)
    assert (pursued.reason, pursued.result.output) == ("completed", "all of it")
    assert len(runs) > 1
    assert [f"read {each}" in editor.tasks[0] for each in "abcde"] == [True] * 5


@pytest.mark.parametrize(("turn", "tasks"), [(0, (1, 1)), (1, (0, 1)), (2, (0, 0))])
async def test_a_fork_carries_out_only_the_steps_not_done_before_it(
    client: Client, turn: int, tasks: tuple[int, int]
) -> None:
    finder, writer = TaskModel(lambda _: "found"), TaskModel(lambda _: "the answer")
    async with a_pipeline(client, CHAIN, {"finder": finder, "writer": writer}) as (loop, _, model):
        handle = await start_pipeline(loop)
        await wait_for_goal(handle, client)
        before = (len(finder.tasks), len(writer.tasks))
        run = await fork(client, handle.id, turn)
        forked = await rewound.wait_for_rewound(client, run)
    assert (forked.result.termination.reason, forked.result.output) == ("completed", "the answer")
    assert (len(finder.tasks) - before[0], len(writer.tasks) - before[1]) == tasks
    assert model.turns == []


async def test_orga_steps_shows_the_plan_and_the_steps_of_a_pipeline(client: Client) -> None:
    agents = {"finder": TaskModel(lambda _: "found"), "writer": TaskModel(lambda _: "the answer")}
    async with a_pipeline(client, CHAIN, agents) as (loop, _, _):
        handle = await start_goal(
            loop.client, {"goal": "see to it", "agent": LEAD}, task_queue=loop.task_queue, pipeline="line"
        )
        await handle.result()
        shown = await goal_phases(read_journal(client, handle.id))
        with pytest.raises(NoPrompt, match="no model was asked in iteration 1"):
            await read_prompt(client, handle.id, 1)
    assert [phase.phase for phase in shown.phases] == ["plan", "execute", "execute", "summarise"]
    rows = phase_table(shown)
    assert any("step-1 finder: do its part" in row for row in rows)
    assert any("✓ step-2 writer: do its part" in row for row in rows)
    assert any("answers: the answer" in row for row in rows)


async def test_a_goal_that_names_an_unknown_pipeline_is_refused(client: Client) -> None:
    async with a_pipeline(client, CHAIN, {"finder": [], "writer": []}) as (loop, _, _):
        handle = await start_goal(
            loop.client, {"goal": "x", "agent": LEAD}, task_queue=loop.task_queue, pipeline="lime"
        )
        with pytest.raises(WorkflowFailureError) as failed:
            await client.get_workflow_handle(handle.id).result()
        other = await start_pipeline(loop, inputs=["x"])
        with pytest.raises(WorkflowFailureError) as refused:
            await other.result()
    assert "there is no pipeline 'lime'" in str(failed.value.cause)
    assert "is a chain, which takes none" in str(refused.value.cause)
