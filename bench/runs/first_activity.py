"""(c) The time from the start of a run to its first activity, by the history's own timestamps."""

from statistics import median, quantiles
from typing import Any

from temporalio.api.enums.v1 import EventType
from temporalio.client import WorkflowHandle

from bench.figures import Figure
from bench.sides.rig import Rig

MAX_MS = 100


async def measure(rig: Rig, runs: int) -> list[Figure]:
    ours: list[float] = []
    floor: list[float] = []
    for _ in range(runs):
        ours.append(await _ms(await rig.ours.run(1)))
        floor.append(await _ms(await rig.floor.run(1)))
    return [
        Figure("c", f"start to first activity, median of {runs}", "ms", median(ours), median(floor), limit=MAX_MS),
        Figure("c", "start to first activity, 95th percentile", "ms", _p95(ours), _p95(floor), limit=MAX_MS),
    ]


def _p95(values: list[float]) -> float:
    return quantiles(values, n=20, method="inclusive")[-1]


async def _ms(handle: WorkflowHandle[Any, Any]) -> float:
    events = (await handle.fetch_history()).events
    first = next(event for event in events if event.event_type == EventType.EVENT_TYPE_ACTIVITY_TASK_STARTED)
    return (first.event_time.ToNanoseconds() - events[0].event_time.ToNanoseconds()) / 1e6
