"""Faults of the SDK's core do not reach runs: a stopped worker ends, and no query runs workflow code too early."""

import asyncio
from datetime import datetime, timedelta
from uuid import uuid4

import pytest
from temporalio import activity, workflow
from temporalio.api.enums.v1 import EventType
from temporalio.bridge.worker import Worker as Bridge
from temporalio.client import Client, WorkflowHandle
from temporalio.worker import Worker

from orga.client.workers import core_faults
from orga.client.workers.core_faults import work_around_core_faults
from orga.testing import ScriptedModel, answers
from tests.support.hold import wait_until
from tests.support.runs.loop import Loop, a_worker

RUNS = 20


async def never_finalize(bridge: Bridge) -> None:
    await asyncio.Event().wait()


async def test_a_worker_that_hangs_in_its_last_step_is_abandoned(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop = Loop(client, "test-ending", ScriptedModel([answers("all is well")]))
    monkeypatch.setattr(core_faults, "LAST_STEP_S", 0.2)
    with monkeypatch.context() as patched:
        patched.setattr(Bridge, "finalize_shutdown", never_finalize)
        worker = a_worker(loop)

    async with asyncio.timeout(60):
        async with worker:
            assert (await loop.run()).result.output == "all is well"
            monkeypatch.setattr(
                Bridge, "finalize_shutdown", never_finalize
            )  # only this worker hangs, not the one that replays
    assert worker.is_shutdown


@workflow.defn(sandboxed=False)
class Clocked:
    """Reports when it started and when its activity had ended, by its own clock."""

    def __init__(self) -> None:
        self._times = [workflow.now()]

    @workflow.run
    async def run(self, queue: str) -> list[datetime]:
        await workflow.execute_activity("wait", task_queue=queue, start_to_close_timeout=timedelta(minutes=1))
        self._times.append(workflow.now())
        return self._times

    @workflow.query
    def times(self) -> list[datetime]:
        return self._times


async def is_task_due(handle: WorkflowHandle[Clocked, list[datetime]]) -> bool:
    """Return true once the activity has ended."""
    events = [event.event_type async for event in handle.fetch_history_events()]
    return EventType.EVENT_TYPE_ACTIVITY_TASK_COMPLETED in events


async def times_across_workers(client: Client) -> list[tuple[datetime, datetime]]:
    """Return the times of runs whose activities end, and that are queried, while no worker polls for them."""
    queue, ends = str(uuid4()), asyncio.Event()

    @activity.defn(name="wait")
    async def wait() -> None:
        await ends.wait()

    def a_clocked_worker() -> Worker:
        return work_around_core_faults(Worker(client, task_queue=queue, workflows=[Clocked]))

    async with Worker(client, task_queue=f"{queue}-activities", activities=[wait]):
        async with a_clocked_worker():
            handles = [
                await client.start_workflow(
                    Clocked.run, f"{queue}-activities", id=f"{queue}-{number}", task_queue=queue
                )
                for number in range(RUNS)
            ]
            began = await asyncio.gather(*(handle.query(Clocked.times) for handle in handles))
        waiting = [asyncio.create_task(handle.query(Clocked.times)) for handle in handles]
        for handle in handles:
            await handle.describe()  # by now the server has the queries; a later query would wait for the workflow task
        ends.set()
        for handle in handles:
            await wait_until(lambda handle=handle: is_task_due(handle))
        async with a_clocked_worker():
            answered = await asyncio.gather(*waiting)
            ended = [await handle.result() for handle in handles]
    assert [times[:1] for times in answered] == began == [times[:1] for times in ended]
    return [(start, end) for start, end in ended]


async def test_a_query_that_waited_for_a_worker_runs_no_workflow_code_early(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server decides whether the query or the workflow task reaches the new worker first."""
    evicted, request = list[str](), Bridge.request_workflow_eviction

    def record(bridge: Bridge, run_id: str) -> None:
        evicted.append(run_id)
        request(bridge, run_id)

    monkeypatch.setattr(Bridge, "request_workflow_eviction", record)
    async with asyncio.timeout(120):
        while not evicted:
            assert all(start < end for start, end in await times_across_workers(client))
