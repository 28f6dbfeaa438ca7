"""(k) Many runs that begin at once: no workflow task may be late, or be repeated because it was late."""

import asyncio

from temporalio.api.enums.v1 import EventType
from temporalio.client import WorkflowHandle

from bench.figures import Figure
from bench.sides.rig import Rig, Side

RUNS = 200
ITERATIONS = 3
LATE_S = 5.0
"""Half of the time that the server allows a workflow task before it gives it to another worker."""

REPEATED = {EventType.EVENT_TYPE_WORKFLOW_TASK_TIMED_OUT, EventType.EVENT_TYPE_WORKFLOW_TASK_FAILED}


async def measure(rig: Rig, runs: int = RUNS) -> list[Figure]:
    floor, ours = await _bad_tasks(rig.floor, runs), await _bad_tasks(rig.ours, runs)
    what = f"tasks of {runs} runs at once that were late or repeated"
    return [Figure("k", what, "", ours, floor, limit=0)]


async def _bad_tasks(side: Side, runs: int) -> int:
    handles = await asyncio.gather(*(side.run(ITERATIONS) for _ in range(runs)))
    return sum([await _bad_tasks_of(handle) for handle in handles])


async def _bad_tasks_of(handle: WorkflowHandle[object, object]) -> int:
    found, started = 0, 0.0
    async for event in handle.fetch_history_events():
        at = event.event_time.ToNanoseconds() / 1e9
        if event.event_type == EventType.EVENT_TYPE_WORKFLOW_TASK_STARTED:
            started = at
        elif event.event_type == EventType.EVENT_TYPE_WORKFLOW_TASK_COMPLETED:
            found += at - started > LATE_S
        found += event.event_type in REPEATED
    return found
