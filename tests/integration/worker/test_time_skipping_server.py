"""The time-skipping server of the test suite."""

import asyncio
import time
from datetime import timedelta

from temporalio import workflow
from temporalio.worker import Worker

from tests.support.parts.time_skipping import time_skipping


@workflow.defn
class SleepsADay:
    @workflow.run
    async def run(self) -> float:
        start = workflow.now()
        await asyncio.sleep(timedelta(days=1).total_seconds())
        return (workflow.now() - start).total_seconds()


async def test_a_day_passes_in_seconds() -> None:
    async with (
        time_skipping() as environment,
        Worker(environment.client, task_queue="day", workflows=[SleepsADay]),
    ):
        start = time.monotonic()
        slept = await environment.client.execute_workflow(SleepsADay.run, id="day", task_queue="day")

    assert slept >= 86_400
    assert time.monotonic() - start < 60
