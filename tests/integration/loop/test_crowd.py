"""Many runs that begin at once share one processor: few of their workflow tasks are in flight, the others wait."""

import asyncio
import time
from threading import Lock
from typing import Any

import pytest
from temporalio.client import Client

from orga.client.runners.workflows import PatientInstance
from orga.client.workers.registered import WORKFLOW_TASKS
from orga.testing import ScriptedModel, answers
from tests.support.runs.loop import a_loop

RUNS = 4 * WORKFLOW_TASKS
SLOW_S = 0.1


class Counted:
    """How many workflow tasks run side by side."""

    def __init__(self) -> None:
        self.now = self.most = 0
        self._lock = Lock()

    def add(self, number: int) -> None:
        with self._lock:
            self.now += number
            self.most = max(self.most, self.now)


async def test_workflow_tasks_in_flight_are_bounded(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a bound a hundred are, each a hundred times as long: the server gives late ones to somebody else."""
    counted, activate = Counted(), PatientInstance.activate

    def slowly(self: PatientInstance, act: Any) -> Any:
        if any(job.HasField("remove_from_cache") for job in act.jobs):  # of a run that has ended: no task
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
