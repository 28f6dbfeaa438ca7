"""A worker that keeps dying is replaced a few times, and its end is reported."""

import asyncio
import subprocess
import sys
from typing import Any, cast

import pytest

from orga.client.workers import process
from orga.client.workers.early_start import WorkerOrder
from orga.client.workers.process import WorkerKeeper, WorkerProcess


async def test_workers_that_die_early_are_replaced_twice_and_then_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[WorkerProcess] = []
    lines: list[str] = []

    async def a_dying_worker(*_: Any) -> WorkerProcess:
        child = subprocess.Popen([sys.executable, "-c", "raise SystemExit(3)"], stdin=subprocess.PIPE)
        started.append(WorkerProcess(child, None))
        return started[-1]

    async def no_versions(*_: Any) -> None:
        """Nobody polls the queue."""

    monkeypatch.setattr(process, "start_worker", a_dying_worker)
    monkeypatch.setattr(process, "routing", no_versions)
    monkeypatch.setattr(process, "KEEP_CHECK_S", 0.01)
    keeper = WorkerKeeper(cast("Any", None), WorkerOrder(None, None, "q"), lines.append, lambda: None)
    await keeper.ensure()
    async with asyncio.timeout(30):
        await keeper.keep()
    await keeper.finish(1.0)

    assert (len(started), keeper.is_keeping) == (3, False)
    assert lines[-1] == "3 workers in a row died soon after their start, so no other one is started; see their logs"
