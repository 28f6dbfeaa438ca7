"""(e) One very long run: it completes through continue-as-new, and its worker's memory stays flat."""

import asyncio
import json
import sys
import uuid
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from time import perf_counter

from temporalio.client import Client

from bench.figures import Figure
from bench.ours import our_input
from bench.rig import Rig

WARM_ITERATIONS = 500
MAX_GROWTH = 1.10
TASK_QUEUE = "bench-endurance"
MEGABYTE = 1024 * 1024


async def measure(rig: Rig, iterations: int) -> list[Figure]:
    """Return the figures; the worker is a process of its own, so that its memory is its own."""
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
    """Start the worker process; the list fills with (iteration, resident bytes)."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "bench.endurance_worker", address, TASK_QUEUE), stdout=asyncio.subprocess.PIPE
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
