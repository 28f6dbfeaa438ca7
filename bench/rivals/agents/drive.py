"""`python drive.py AGENT start|resume|times …`: runs one of the agents and prints its times."""

import asyncio
import importlib
import json
import os
import sys
import time
import uuid
from typing import Any

from errand import task

SPARE = 5
"""Iterations that are allowed in addition to those that the errand needs."""


async def start(agent: Any, run: str, payments: str) -> None:
    async with agent.session() as session:
        print(await session.start(run, task(int(payments)), int(payments) + SPARE))


async def resume(agent: Any, run: str) -> None:
    async with agent.session() as session:
        print(await session.resume(run))


async def times(agent: Any, short: str, long: str) -> None:
    """Print the seconds of both, by the clock and of the processor, once the process is warm, and the long one's id."""
    async with agent.session() as session:
        measured: dict[str, Any] = {}
        for name, payments in (("warm", int(short)), ("short", int(short)), ("long", int(long))):
            run = f"{agent.__name__}-{uuid.uuid4()}"
            wall, cpu = time.perf_counter(), time.process_time()
            answer = await session.start(run, task(payments), payments + SPARE)
            measured[name] = {"wall_s": time.perf_counter() - wall, "cpu_s": time.process_time() - cpu}
            assert answer == "All paid.", answer
        print(json.dumps(measured | {"run": run}))


if __name__ == "__main__":
    modes = {"start": start, "resume": resume, "times": times}
    _, agent_name, mode, *arguments = sys.argv
    asyncio.run(modes[mode](importlib.import_module(f"{agent_name}_agent"), *arguments))
    sys.stdout.flush()
    os._exit(0)  # The SDK's threads may abort the interpreter as it ends, with exit code 134.
