"""(a) The size of histories, by kind of event."""

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from temporalio.api.enums.v1 import EventType
from temporalio.api.history.v1 import HistoryEvent
from temporalio.client import WorkflowHandle

from bench.figures import Figure, ratio_of
from bench.sides.rig import Rig

SHORT, LONG = 100, 200
MAX_RATIO = 1.05
MAX_GROWTH = 2.05
MAX_EVENTS = 14


async def measure(rig: Rig) -> list[Figure]:
    """Return the figures, and print the table of events."""
    ours = {n: await rig.ours.run(n) for n in (SHORT, LONG)}
    floor = {n: await rig.floor.run(n) for n in (SHORT, LONG)}
    ours_bytes = {n: await _bytes(handle) for n, handle in ours.items()}
    floor_bytes = {n: await _bytes(handle) for n, handle in floor.items()}
    ours_events = (await ours[LONG].fetch_history()).events
    floor_events = (await floor[LONG].fetch_history()).events
    growth = ours_bytes[LONG] / ours_bytes[SHORT]
    floor_growth = floor_bytes[LONG] / floor_bytes[SHORT]
    figures = [
        ratio_of("a", f"history at {SHORT} iterations", "bytes", ours_bytes[SHORT], floor_bytes[SHORT]),
        ratio_of("a", f"history at {LONG} iterations", "bytes", ours_bytes[LONG], floor_bytes[LONG], MAX_RATIO),
        Figure("a", f"bytes({LONG}) / bytes({SHORT})", "", growth, floor_growth, limit=MAX_GROWTH),
        Figure("a", "events per iteration", "", len(ours_events) / LONG, len(floor_events) / LONG, limit=MAX_EVENTS),
    ]
    print(_by_type(ours_events, floor_events) + "\n")
    return figures


async def _bytes(handle: WorkflowHandle[Any, Any]) -> int:
    """Return the size as the server counts it for its limits."""
    description = await handle.describe()
    return description.raw_description.workflow_execution_info.history_size_bytes


def _by_type(ours: Sequence[HistoryEvent], floor: Sequence[HistoryEvent]) -> str:
    sides = [_sizes(ours), _sizes(floor)]
    kinds = sorted({kind for side in sides for kind in side}, key=lambda kind: -sum(sides[0].get(kind, ())))
    lines = [f"{f'events at {LONG} iterations':<42}{'ours: n':>10}{'avg bytes':>11}{'floor: n':>10}{'avg bytes':>11}"]
    for kind in kinds:
        columns = "".join(f"{len(side[kind]):>10}{_average(side[kind]):>11.1f}" for side in sides)
        lines.append(f"{kind:<42}{columns}")
    return "\n".join(lines)


def _sizes(events: Sequence[HistoryEvent]) -> dict[str, list[int]]:
    sizes: dict[str, list[int]] = defaultdict(list)
    for event in events:
        name = EventType.Name(event.event_type).removeprefix("EVENT_TYPE_").title().replace("_", "")
        if name == "ActivityTaskScheduled":
            name += f" {event.activity_task_scheduled_event_attributes.activity_type.name}"
        sizes[name.replace("Scheduled model", "Scheduled reason")].append(event.ByteSize())
    return sizes


def _average(sizes: Sequence[int]) -> float:
    return sum(sizes) / len(sizes) if sizes else 0.0
