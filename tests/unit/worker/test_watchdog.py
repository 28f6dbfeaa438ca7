"""The watchdog reports how long and by which task a worker's event loop was blocked, also to the doctor."""

import asyncio
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from opentelemetry import metrics
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import HistogramDataPoint, InMemoryMetricReader
from temporalio.client import Client

from orga.activities.watchdog import LoopBlock, Watchdog
from orga.client.cli.workbench.doctor import blocked_loop_checks, check_lines
from orga.client.server.home import read_table, server_home, write_table
from orga.client.server.pollers import local_process, longest_block_text, remember_blocked_loop
from orga.testing import FakeTool, answers, calls
from orga.workflows.types import telemetry_names as names
from tests.support.runs.loop import a_loop
from tests.support.web.telemetry import fresh_globals

__all__ = ["fresh_globals"]

BY_A_TASK = re.compile(r"event loop was held for .* by (.*, in \w+)")
"""A pause that the machine causes is not attributed to a task."""


def holds_the_loop(seconds: float) -> str:
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        pass
    return "held"


async def compute(seconds: float) -> None:
    holds_the_loop(seconds)


async def test_it_reports_the_task_and_its_place(caplog: pytest.LogCaptureFixture) -> None:
    reported: list[LoopBlock] = []
    async with Watchdog(held_s=0.2, report=reported.append).watch() as watchdog:
        await asyncio.sleep(0.15)
        await asyncio.create_task(compute(1.2), name="sums")
        await asyncio.sleep(0.15)
        await asyncio.create_task(compute(0.4))
        await asyncio.sleep(0.15)
    assert 0.9 < watchdog.longest.seconds < 5
    assert watchdog.longest.task == "sums"
    assert re.fullmatch(r"holds_the_loop \(test_watchdog.py:\d+\)", watchdog.longest.location)
    assert [held for held in reported if held.task] == [watchdog.longest], "the second block was shorter"
    assert [found[1] for record in caplog.records if (found := BY_A_TASK.search(record.getMessage()))] == [
        "sums, in holds_the_loop",
        "compute, in holds_the_loop",
    ]


STOPPED = """
import asyncio, time
from orga.activities.watchdog import Watchdog

async def main():
    blocks = []
    async with Watchdog(held_s=1.0, report=blocks.append).watch() as watchdog:
        await asyncio.sleep(0.3)
        print("watching", flush=True)
        while not any(block.is_of_process for block in blocks):
            await asyncio.sleep(0.05)
    print(blocks[-1], flush=True)

asyncio.run(main())
"""


def test_a_stopped_process_is_not_attributed_to_a_task() -> None:
    with subprocess.Popen([sys.executable, "-c", STOPPED], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "watching\n"
        process.send_signal(signal.SIGSTOP)
        time.sleep(1.5)
        process.send_signal(signal.SIGCONT)
        reported = process.stdout.readline()
    assert re.fullmatch(r"stopped for \d+\.\d s together with its whole process\n", reported)


async def test_a_responsive_loop_is_not_reported(caplog: pytest.LogCaptureFixture) -> None:
    reported: list[LoopBlock] = []
    async with Watchdog(held_s=30.0, report=reported.append).watch() as watchdog:
        for _ in range(30):
            holds_the_loop(0.005)
            await asyncio.sleep(0.01)
    assert (reported, watchdog.longest.task, "held" in caplog.text) == ([], "", False)


async def test_an_activity_is_reported_with_its_place_and_run(client: Client, fresh_globals: None) -> None:
    reader = InMemoryMetricReader()
    metrics.set_meter_provider(MeterProvider([reader]))
    tool = FakeTool("look", lambda arguments, context: holds_the_loop(0.8))
    async with (
        a_loop(client, [calls("look"), answers("done")], tool) as loop,
        Watchdog(held_s=0.3).watch() as watchdog,
    ):
        handle = await loop.start()
        await handle.result()
        await asyncio.sleep(0.2)
    assert watchdog.longest.task == f"look 1.0 of {handle.id}"
    assert "look" in by_activity(reader, names.LOOP_HELD)


def by_activity(reader: InMemoryMetricReader, metric: str) -> dict[str, float]:
    """Return the longest time by what blocked the loop."""
    data = reader.get_metrics_data()
    assert data
    found = [m for r in data.resource_metrics for s in r.scope_metrics for m in s.metrics if m.name == metric]
    points = [point for each in found for point in each.data.data_points]
    return {
        str((point.attributes or {})[names.HELD_BY]): point.max
        for point in points
        if isinstance(point, HistogramDataPoint)
    }


def test_the_doctor_reports_only_workers_that_are_alive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ORGA_HOME", str(tmp_path / "home"))
    me = local_process(os.getpid())
    assert blocked_loop_checks([f"{me}#abc"]) == []
    server_home().folder.mkdir()
    write_table(server_home().blocked_loops, {local_process(10**7): "held for 9 s by what is gone"})
    remember_blocked_loop(LoopBlock(3.2, "look 1.0 of agent-1", "search (search_text.py:31)"))
    assert list(read_table(server_home().blocked_loops)) == [me]
    first, remedy = check_lines(blocked_loop_checks(["1@elsewhere#abc", f"{me}#abc"])[0])
    assert first.startswith(f"! worker {me}: its event loop was held for 3.2 s by look 1.0 of agent-1, in search (sea")
    assert "blocking" in remedy


def test_a_failed_write_is_ignored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "home").write_text("no folder")
    monkeypatch.setenv("ORGA_HOME", str(tmp_path / "home"))
    remember_blocked_loop(LoopBlock(3.2))
    assert longest_block_text(local_process(os.getpid())) == ""
