"""Many runs that start at once share one processor: only some of their workflow tasks run at a time."""

import asyncio
import time
from threading import Lock
from typing import Any

import pytest
from temporalio.client import Client

from orga.client.runners.workflows import PatientInstance
from orga.client.workers.registrations import WORKFLOW_TASKS
from orga.testing import ScriptedModel, answers
from tests.support.runs.loop import a_loop

RUNS = 4 * WORKFLOW_TASKS
SLOW_S = 0.1


class Counted:
    """Counts how many workflow tasks run at the same time."""

    def __init__(self) -> None:
        self.now = self.most = 0
        self._lock = Lock()

    def add(self, number: int) -> None:
        with self._lock:
            self.now += number
            self.most = max(self.most, self.now)


async def test_workflow_tasks_in_flight_are_bounded(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a limit a hundred would run, each a hundred times slower, and the server would reassign the late ones."""
    counted, activate = Counted(), PatientInstance.activate

    def slowly(self: PatientInstance, act: Any) -> Any:
        if any(job.HasField("remove_from_cache") for job in act.jobs):  # an eviction of an ended run is not a task
            return activate(self, act)
        counted.add(1)
        try:
            time.sleep(SLOW_S)
            return activate(self, act)
        finally:
            counted.add(-1)

    monkeypatch.setattr(PatientInstance, "activate", slowly)
    async with a_loop(client, ScriptedModel([answers()] * RUNS, repeats=True)) as loop:
        handles = await asyncio.gather(*(loop.start() for _ in range(RUNS)))
        ended = await asyncio.gather(*(loop.ended(handle) for handle in handles))
    assert {ran.result.termination.reason for ran in ended} == {"completed"}
    assert 1 < counted.most <= WORKFLOW_TASKS
