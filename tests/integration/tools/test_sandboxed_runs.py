"""Commands of a run end with the run: on an abort, when the worker stops, and at a limit."""

import asyncio
from datetime import timedelta
from pathlib import Path

import pytest
from temporalio.client import Client

from orga.activities.adapters.tools.root import FileRoot
from orga.activities.adapters.tools.run_command import RunCommand
from orga.testing import ScriptedModel, answers, calls
from orga.workflows.types.tool_calls.sandbox import Isolation, Sandbox, SandboxLimits
from tests.support.parts.bubblewrap import bubblewrap
from tests.support.programs.processes import is_running
from tests.support.runs.loop import a_loop

SCRIPT = """trap '' TERM
setsid sh -c 'trap "" TERM; echo $$ >> pids; while :; do sleep 0.1; done' &
while :; do sleep 0.1; echo x >> alive; done"""
"""Both processes ignore the request to end, and one has left its session."""


def runs_the_script(folder: Path, isolation: Isolation = "none") -> tuple[RunCommand, ScriptedModel]:
    tool = RunCommand(FileRoot(folder), ["sh"], sandbox=Sandbox(isolation=isolation))
    return tool, ScriptedModel(
        [calls("run_command", arguments={"command": ["sh", "-c", SCRIPT]}), answers("x")], repeats=True
    )


async def begun(folder: Path) -> None:
    async with asyncio.timeout(30):
        while not ((folder / "pids").exists() and (folder / "alive").exists()):
            await asyncio.sleep(0.05)


async def has_ended(folder: Path) -> bool:
    """Return true once the process no longer writes to its file."""
    size = (folder / "alive").stat().st_size
    await asyncio.sleep(0.5)
    return (folder / "alive").stat().st_size == size


@pytest.mark.parametrize("isolation", ["none", "bubblewrap"])
async def test_an_abort_ends_a_command_and_all_its_processes(
    client: Client, tmp_path: Path, isolation: Isolation
) -> None:
    bubblewrap()
    tool, provider = runs_the_script(tmp_path, isolation)
    async with a_loop(client, provider, tool) as loop:
        handle = await loop.start(tool_timeout_s=200, timeout_s=250)
        await begun(tmp_path)
        await handle.signal("abort", "enough")
        ran = await asyncio.wait_for(loop.ended(handle), 30)

        assert ran.result.termination.reason == "aborted"
        assert await has_ended(tmp_path)
        if isolation == "none":
            assert not any(map(is_running, map(int, (tmp_path / "pids").read_text().split())))


async def test_the_end_of_a_worker_ends_its_commands(client: Client, tmp_path: Path) -> None:
    tool, provider = runs_the_script(tmp_path)
    async with a_loop(client, provider, tool, graceful_shutdown_timeout=timedelta(0)) as loop:
        handle = await loop.start(tool_timeout_s=200, timeout_s=250)
        await begun(tmp_path)
    assert await has_ended(tmp_path)
    assert not any(map(is_running, map(int, (tmp_path / "pids").read_text().split())))
    await handle.terminate()


async def test_the_model_learns_which_limit_ended_its_command(client: Client, tmp_path: Path) -> None:
    tool = RunCommand(FileRoot(tmp_path), ["sh"], sandbox=Sandbox(limits=SandboxLimits(processes=3)))
    script = "for i in 1 2 3 4; do sleep 60 & done; wait"
    provider = ScriptedModel(
        [calls("run_command", arguments={"command": ["sh", "-c", script]}), answers("so be it")], repeats=True
    )
    async with a_loop(client, provider, tool) as loop:
        assert (await loop.run()).result.output == "so be it"
    assert "sh was killed by SIGKILL (Killed); it reached its limit processes." in provider.seen[1].messages[-1].text
