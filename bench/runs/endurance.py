"""(e) One very long run: it completes across continue-as-new, and its worker's memory does not grow.

As a program, this module is the worker process of that run.
"""

import asyncio
import json
import resource
import sys
import uuid
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from time import perf_counter

from temporalio.client import Client

from bench.figures import Figure
from bench.sides.ours import our_input, our_worker
from bench.sides.rig import Rig
from bench.sides.script import Script
from orga.client.history.values import data_converter

WARM_ITERATIONS = 500
MAX_GROWTH = 1.10
TASK_QUEUE = "bench-endurance"
MEGABYTE = 1024 * 1024


async def measure(rig: Rig, iterations: int) -> list[Figure]:
    """Return the figures. The worker is a process of its own, so that its memory can be measured."""
    client = rig.ours.client
    async with _worker(rig.address) as samples:
        started = perf_counter()
        handle = await client.start_workflow(
            "AgentWorkflow", our_input(iterations), id=f"ours-{uuid.uuid4()}", task_queue=TASK_QUEUE, result_type=dict
        )
        done = (await handle.result())["iterations"]
        wall_s = perf_counter() - started
    chain = await _chain(client, handle.id)
    warm = next(rss for iteration, rss in samples if iteration >= WARM_ITERATIONS)
    later = [rss for iteration, rss in samples if iteration > WARM_ITERATIONS]
    return [
        Figure("e", f"iterations left undone of {iterations:,}", "", iterations - done, limit=0),
        Figure("e", "runs in the continue-as-new chain", "", chain),
        Figure("e", "whole run", "s", wall_s),
        Figure("e", f"memory after {WARM_ITERATIONS} iterations", "MB", warm / MEGABYTE),
        Figure("e", "memory at the end", "MB", later[-1] / MEGABYTE),
        Figure("e", f"memory at the end / after {WARM_ITERATIONS}", "", later[-1] / warm, limit=MAX_GROWTH),
        Figure("e", f"highest memory later / after {WARM_ITERATIONS}", "", max(later) / warm, limit=MAX_GROWTH),
    ]


@asynccontextmanager
async def _worker(address: str) -> AsyncGenerator[list[tuple[int, int]]]:
    """Start the worker process. The list fills with (iteration, resident bytes)."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "bench.runs.endurance", address, TASK_QUEUE), stdout=asyncio.subprocess.PIPE
    )
    samples: list[tuple[int, int]] = []
    reading = asyncio.create_task(_read(process, samples))
    try:
        yield samples
    finally:
        process.terminate()
        await process.wait()
        await reading


async def _read(process: asyncio.subprocess.Process, samples: list[tuple[int, int]]) -> None:
    assert process.stdout is not None
    async for line in process.stdout:
        sample = json.loads(line)
        samples.append((sample["iteration"], sample["rss"]))


async def _chain(client: Client, workflow_id: str) -> int:
    """Count the runs of a chain, from the last to the first."""
    length, run_id = 0, None
    while run_id != "":
        handle = client.get_workflow_handle(workflow_id, run_id=run_id)
        async for event in handle.fetch_history_events(page_size=1):
            run_id = event.workflow_execution_started_event_attributes.continued_execution_run_id
            break
        length += 1
    return length


SAMPLE_EVERY = 50
STATM = Path("/proc/self/statm")


async def _work(address: str, task_queue: str) -> None:
    """Run the worker process, which prints its memory every 50 iterations, until it is terminated."""
    client = await Client.connect(address, data_converter=data_converter)
    worker = our_worker(client, task_queue, Script(_print_memory))
    await worker.run()


def _print_memory(iteration: int) -> None:
    if iteration % SAMPLE_EVERY == 0:
        resident = int(STATM.read_text().split()[1]) * resource.getpagesize()
        sys.stdout.write(json.dumps({"iteration": iteration, "rss": resident}) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    asyncio.run(_work(*sys.argv[1:]))
