"""The policy engine of earlier runs stays required: a worker with missing policies does not weaken it."""

import shutil
import signal
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path

import pytest
from temporalio.client import Client
from temporalio.service import RPCError

from orga import start_agent, start_goal, start_session
from orga.client.workers.engine_memory import recorded_engine
from orga.testing import ScriptedModel, answers
from tests.support.hold import wait_until
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
async def test_the_latest_run_of_a_queue_determines_its_engine(
    client: Client, begin: Callable[[Client, str], Awaitable[str]]
) -> None:
    async with a_loop(client, ScriptedModel([answers()], repeats=True)) as loop:
        assert await recorded_engine(client, loop.task_queue) == ""
        run_id = await begin(client, loop.task_queue)

        async def is_recorded() -> bool:
            return await recorded_engine(client, loop.task_queue) == "default"

        await wait_until(is_recorded)
        with suppress(RPCError):  # it may have ended already
            await client.get_workflow_handle(run_id).terminate("its test is over")


def test_a_worker_does_not_join_a_queue_with_another_policy(client: Client, tmp_path: Path) -> None:
    server = {
        "TEMPORAL_ADDRESS": client.service_client.config.target_host,
        "ORGA_TEMPORAL__TASK_QUEUE": f"shared-{tmp_path.name}",
    }
    (tmp_path / "ours").mkdir()
    (tmp_path / "theirs").mkdir()
    a_folder(tmp_path / "ours", all=PERMIT_ALL, none='@id("none") forbid (principal, action, resource);')
    a_folder(tmp_path / "theirs", all=PERMIT_ALL)
    ours, theirs = (an_orga(tmp_path / name, tmp_path / "home", **server) for name in ("ours", "theirs"))
    with ours.started("worker") as worker:
        worker.line("polls task queue")
        with theirs.started("worker") as refused:
            refused.line(
                "judges by another policy than this folder's. Give this folder a .temporal. task_queue of its own"
            )
            assert refused.code() != 0
        run = theirs("run", "look")
        assert (run.code, "judges by another policy than this folder's" in run.err) == (2, True)
        worker.send(signal.SIGTERM)
        worker.code()
    assert "own worker, because `orga worker` would fail the run here (agent: there is no agent 'clerk'" in (
        ours("run", "look", "--detach", "--agent", "clerk", "--id", "clerk-of-code").err
    )
    ours("abort", "clerk-of-code")
    left = ours("run", "look", "--detach").out.strip()
    with theirs.started("worker") as refused:
        refused.line(f"run {left} on task queue .* is judged by another policy")
    with ours.started("worker") as worker:
        worker.line("polls task queue")
        assert ours("attach", left).code == 4, "denied by policy"


def test_a_worker_whose_policies_are_missing_does_not_start(tmp_path: Path) -> None:
    """It would allow what the policies deny. A person may confirm that this is intended."""
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
