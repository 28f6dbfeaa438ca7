"""The engine of a run stays: what is missing at a worker's start does not weaken it."""

import shutil
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path

import pytest
from temporalio.client import Client
from temporalio.service import RPCError

from orga import start_agent, start_goal, start_session
from orga.client.workers.engine_memory import recorded_engine
from orga.testing import ScriptedModel, answers
from tests.support.hold import until
from tests.support.programs.orga_command import an_orga
from tests.support.runs.loop import a_loop
from tests.support.values.policies import PERMIT_ALL, a_folder


async def an_agent(client: Client, task_queue: str) -> str:
    return (await start_agent(client, {"task": "look"}, task_queue=task_queue)).id


async def a_goal(client: Client, task_queue: str) -> str:
    return (await start_goal(client, "look", task_queue=task_queue)).id


async def a_session(client: Client, task_queue: str) -> str:
    return (await start_session(client, task_queue=task_queue)).id


@pytest.mark.parametrize("begin", [an_agent, a_goal, a_session])
async def test_the_latest_run_of_a_queue_says_its_engine(
    client: Client, begin: Callable[[Client, str], Awaitable[str]]
) -> None:
    async with a_loop(client, ScriptedModel([answers()], repeats=True)) as loop:
        assert await recorded_engine(client, loop.task_queue) == ""
        run_id = await begin(client, loop.task_queue)

        async def is_told() -> bool:
            return await recorded_engine(client, loop.task_queue) == "default"

        await until(is_told)
        with suppress(RPCError):  # it may have ended by itself
            await client.get_workflow_handle(run_id).terminate("its test is over")


def test_a_worker_whose_policies_are_missing_does_not_start(tmp_path: Path) -> None:
    """It would let run what they deny; a person may say that this is meant."""
    (tmp_path / "orga.toml").write_text("")
    a_folder(tmp_path, all=PERMIT_ALL)
    orga = an_orga(tmp_path, tmp_path / "home")
    try:
        with orga.started("worker") as worker:
            assert worker.line(r"policy: cedar, version (\w+)")[1]
        shutil.rmtree(tmp_path / "policies")
        with orga.started("worker") as worker:
            worker.line(r'cedar has judged the runs here, and now default would.*say \[policy\] engine = "default"')
        assert not any("polls task queue" in line for line in worker.err)
        (tmp_path / "orga.toml").write_text('[policy]\nengine = "default"')
        with orga.started("worker") as worker:
            worker.line("policy: default judges in place of cedar")
            worker.line("polls task queue")
    finally:
        orga("server", "--stop")
