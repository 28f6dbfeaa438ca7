"""A worker dies between the parallel agents of a pipeline: no input runs twice, and all results are joined."""

import asyncio
from datetime import timedelta
from pathlib import Path
from uuid import uuid4

import pytest
from temporalio.client import Client

from orga.testing import FakeTool
from orga.workflows.types.goals.pipelines import Pipeline
from tests.support.crash.stage import NEVER, PATIENCE
from tests.support.crash.worker import Backstage, CrashWorker, Fate
from tests.support.model.inputs import InputModel
from tests.support.runs.goals import wait_for_goal
from tests.support.runs.loop import check_replay, histories_of

SURVEY = Pipeline.model_validate({"kind": "map_reduce", "map": "helper", "reduce": "helper"})


def one_held(backstage: Backstage) -> list[FakeTool]:
    """Return tools. `note` does not end before it is released."""
    return [
        backstage.tool("look", "read_only"),
        backstage.tool("note", held=True),
        backstage.tool("send", "irreversible"),
    ]


@pytest.mark.parametrize(
    "fate",
    [
        pytest.param(Fate(after_s=3.0), id="between parallel agents"),
        pytest.param(Fate("reduce"), id="in the reduce step"),
    ],
)
async def test_no_input_is_processed_twice_when_a_worker_dies(client: Client, tmp_path: Path, fate: Fate) -> None:
    queue, effects = f"pipelines-{uuid4()}", tmp_path / "effects"
    effects.touch()
    if fate.moment:
        effects.with_name("release").touch()
    address = client.service_client.config.target_host
    dies, lives = (
        CrashWorker(address, queue, effects, NEVER, each, one_held, model=InputModel, pipelines={"line": SURVEY})
        for each in (fate, Fate())
    )
    handle = await client.start_workflow(
        "GoalWorkflow",
        {"goal": "see to each", "pipeline": "line", "inputs": ["look", "note", "send"]},
        id=f"goal-{queue}",
        task_queue=queue,
        execution_timeout=PATIENCE,
        task_timeout=timedelta(seconds=5),
    )
    dying = dies.started()
    await asyncio.to_thread(dying.join, 90)
    assert dying.exitcode == -9
    effects.with_name("release").touch()
    living = lives.started()
    try:
        pursued = await wait_for_goal(handle, client)
        for place in ("1.0", "1.1", "1.2", "2.0"):
            for history in await histories_of(client, f"{handle.id}.{place}"):
                await check_replay(history)
    finally:
        living.kill()
        living.join()
    done = [line.split() for line in effects.read_text().splitlines()]
    assert {tool for tool, _ in done} == {"look", "note", "send"}
    assert len({key for _, key in done}) == 3
    assert [tool for tool, _ in done].count("send") == 1
    assert (pursued.reason, pursued.result.output) == ("completed", "3 joined")
    assert [step.attempts for step in pursued.result.steps] == [1, 1, 1, 1]
