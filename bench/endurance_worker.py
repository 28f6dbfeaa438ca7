"""The worker process of the long run: tells its memory on stdout as the iterations go by. Ends when told to."""

import asyncio
import json
import resource
import sys
from pathlib import Path

from temporalio.client import Client

from bench.ours import our_worker
from bench.script import Script
from orga.client.history.converter import data_converter

SAMPLE_EVERY = 50
STATM = Path("/proc/self/statm")


def _tell(iteration: int) -> None:
    if iteration % SAMPLE_EVERY == 0:
        resident = int(STATM.read_text().split()[1]) * resource.getpagesize()
        sys.stdout.write(json.dumps({"iteration": iteration, "rss": resident}) + "\n")
        sys.stdout.flush()


async def _work(address: str, task_queue: str) -> None:
    client = await Client.connect(address, data_converter=data_converter)
    worker = our_worker(client, task_queue, Script(_tell))
    await worker.run()


if __name__ == "__main__":
    asyncio.run(_work(*sys.argv[1:]))
