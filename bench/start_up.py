"""(q) Processor time of whole commands, compared with an interpreter that loads the SDK's client."""

import asyncio
import os
import subprocess
import sys
import tempfile
import uuid
from pathlib import Path
from statistics import median

from bench.figures import Figure, ratio_of
from bench.sides.ours import our_input
from bench.sides.rig import Rig
from orga.client.runs.agents import AgentHandle, start_agent

ORGA = str(Path(sys.executable).with_name("orga"))
BARE = (sys.executable, "-c", "import temporalio.client")
ITERATIONS = 10_000
"""Iterations of the run that the commands use. It is paused long before."""
ALONE, OF_A_SERVER = 0.9, 3.0
"""Limits of the ratios for commands without and with a server. Seconds depend on the machine."""


def commands(run_id: str) -> dict[str, tuple[float, tuple[str, ...]]]:
    """Return the measured commands by name, each with its limit and its arguments."""
    return {
        "orga --version": (ALONE, (ORGA, "--version")),
        "orga --help": (ALONE, (ORGA, "--help")),
        "orga list": (OF_A_SERVER, (ORGA, "list")),
        "orga status": (OF_A_SERVER, (ORGA, "status", run_id)),
        "orga steer": (OF_A_SERVER, (ORGA, "steer", run_id, "Look at the tests as well.")),
    }


async def measure(rig: Rig, rounds: int) -> list[Figure]:
    """Run the bare interpreter and each command in turn, round by round. The run that they use is paused."""
    run = await _paused(rig)
    asked = commands(run.id)
    bare: list[float] = []
    taken: dict[str, list[float]] = {name: [] for name in asked}
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(rounds + 1):
            bare.append(await asyncio.to_thread(processor_s, BARE, folder, rig.address))
            for name, (_limit, typed) in asked.items():
                taken[name].append(await asyncio.to_thread(processor_s, typed, folder, rig.address))
    await run.abort()
    return [
        ratio_of("q", f"{name}, median of {rounds}", "s", median(taken[name][1:]), median(bare[1:]), limit)
        for name, (limit, _typed) in asked.items()
    ]


def processor_s(typed: tuple[str, ...], folder: str, address: str) -> float:
    """Return the processor time of a whole program in a folder, user and system, in seconds.

    Raises:
        CalledProcessError: It failed, so its time is no valid figure.
    """
    settings = {name: value for name, value in os.environ.items() if not name.startswith("ORGA_")}
    settings["TEMPORAL_ADDRESS"] = address
    nowhere = subprocess.DEVNULL
    program = subprocess.Popen(typed, cwd=folder, env=settings, stdin=nowhere, stdout=nowhere, stderr=nowhere)
    _, status, usage = os.wait4(program.pid, 0)
    program.returncode = os.waitstatus_to_exitcode(status)
    if program.returncode:
        raise subprocess.CalledProcessError(program.returncode, typed)
    return usage.ru_utime + usage.ru_stime


async def _paused(rig: Rig) -> AgentHandle:
    """Start a run and pause it. It can be queried and steered, and takes no processor time."""
    run = await start_agent(
        rig.ours.client, our_input(ITERATIONS), workflow_id=f"asked-{uuid.uuid4()}", task_queue=rig.ours.task_queue
    )
    await run.pause()
    return run
