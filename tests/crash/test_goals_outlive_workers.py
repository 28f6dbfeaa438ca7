"""A worker dies in the middle of a goal: another one continues, and no unrepeatable call runs twice."""

from collections import Counter
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from temporalio.client import Client, WorkflowHandle

from orga.workflows.types.goals.deliveries import DeliveryKind
from tests.support.crash.stage import NEVER, PATIENCE, all_tools
from tests.support.crash.worker import CrashWorker, Fate
from tests.support.model.goals import SteadyModel
from tests.support.runs.loop import check_replay, check_tasks, histories_of


async def pursued_by(
    client: Client, queue: str, first: CrashWorker, second: CrashWorker
) -> tuple[WorkflowHandle[Any, Any], dict[str, Any]]:
    """Return a goal and its result. The first worker dies during it, and the second one continues."""
    handle = await client.start_workflow(
        "GoalWorkflow",
        {"goal": "see to it"},
        id=f"goal-{uuid4()}",
        task_queue=queue,
        execution_timeout=PATIENCE,
        task_timeout=timedelta(seconds=5),
    )
    dying = first.started()
    dying.join(60)
    assert dying.exitcode == -9
    living = second.started()
    ended = await handle.result()
    living.kill()
    living.join()
    assert ended["termination"]["reason"] == "completed"
    return handle, ended


@pytest.mark.parametrize("moment", ["goal_plan", "look", "send", "goal_evaluate", "goal_summary"])
async def test_a_goal_survives_its_worker(client: Client, tmp_path: Path, moment: str) -> None:
    queue, effects = f"goals-{uuid4()}", tmp_path / "effects"
    effects.touch()
    address = client.service_client.config.target_host
    first, second = (
        CrashWorker(address, queue, effects, NEVER, fate, all_tools, model=SteadyModel)
        for fate in (Fate(moment), Fate())
    )
    handle, _ = await pursued_by(client, queue, first, second)
    done = Counter((line.split()[0], line.split()[1]) for line in effects.read_text().splitlines())
    distinct = Counter(tool for tool, _ in done)
    assert (distinct["look"], distinct["note"]) == (2, 1)
    sent = [count for (tool, _), count in done.items() if tool == "send"]
    assert sent in ([1], [] if moment == "look" else [1])  # a call that may have had its effect is not repeated
    for history in await histories_of(client, handle.id):
        check_tasks(history)
        await check_replay(history)


@pytest.mark.parametrize(
    ("kind", "status", "attempts", "times"),
    [
        pytest.param("webhook", "delivered", 2, 2, id="a receiver recognises a repetition by its key"),
        pytest.param("discord", "failed", 2, 1, id="a chat gets no message twice"),
    ],
)
async def test_a_delivery_survives_its_worker(
    client: Client, tmp_path: Path, kind: DeliveryKind, status: str, attempts: int, times: int
) -> None:
    queue, effects = f"goals-{uuid4()}", tmp_path / "effects"
    effects.touch()
    address = client.service_client.config.target_host
    first, second = (
        CrashWorker(address, queue, effects, NEVER, fate, all_tools, model=SteadyModel, delivers=kind)
        for fate in (Fate("delivered"), Fate())
    )
    handle, ended = await pursued_by(client, queue, first, second)
    [delivery] = ended["deliveries"]
    assert (delivery["status"], delivery["attempts"]) == (status, attempts)
    assert ("not sent twice" in delivery["error"]) is (status == "failed")
    keys = (tmp_path / "delivered").read_text().splitlines()
    assert (len(keys), len(set(keys))) == (times, 1)
    for history in await histories_of(client, handle.id):
        check_tasks(history)
        await check_replay(history)
