"""A worker process that kills itself when settings are checked: `ADDRESS QUEUE DELAY_S`."""

import asyncio
import os
import signal
import sys
import time
from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from threading import Thread
from typing import Any

from temporalio.client import Client

from orga.client.config.sections import OrgaConfig
from orga.client.history.values import data_converter
from orga.client.workers.parts import configured_parts
from orga.worker import build_worker
from orga.workflows.types.settings import SettingProblem


async def work(address: str, queue: str, delay_s: float) -> None:
    """Poll the queue until the end."""
    client = await Client.connect(address, data_converter=data_converter)
    parts = configured_parts(OrgaConfig(), {}, Path.cwd(), knows_attributes=False, client=client)

    def check(queue: str, values: Mapping[str, Any]) -> list[SettingProblem]:
        if not delay_s:
            os.kill(os.getpid(), signal.SIGKILL)
        Thread(target=kill_later, daemon=True).start()
        return []

    def kill_later() -> None:
        time.sleep(delay_s)
        os.kill(os.getpid(), signal.SIGKILL)

    parts = replace(parts, check_settings=check)
    # after this time the server gives its tasks to another worker
    async with build_worker(client, parts, queue, sticky_queue_schedule_to_start_timeout=timedelta(seconds=1)):
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(work(sys.argv[1], sys.argv[2], float(sys.argv[3])))
