"""(d) The time to replay a history of 200 iterations."""

from statistics import median
from time import perf_counter

from temporalio.client import WorkflowHistory

from bench.figures import Figure
from bench.sides.rig import Rig, Side

ITERATIONS = 200
MAX_RATIO = 1.5


async def measure(rig: Rig, pairs: int) -> list[Figure]:
    sides = (rig.ours, rig.floor, rig.phased)
    histories = [await (await side.run(ITERATIONS)).fetch_history() for side in sides]
    taken = [[await _ms(*each) for each in zip(sides, histories, strict=True)] for _ in range(pairs + 1)][1:]
    ours, floor, phased = (median(times) for times in zip(*taken, strict=True))
    what = f"replay of {ITERATIONS} iterations, median of {pairs} pairs"
    ratio, phased_ratio = (median(times[0] / times[other] for times in taken) for other in (1, 2))
    return [
        Figure("d", what, "ms", ours, floor, ratio, MAX_RATIO),
        Figure("d", "replay, floor with the same activities", "ms", ours, phased, phased_ratio),
    ]


async def _ms(side: Side, history: WorkflowHistory) -> float:
    replayer = side.replayer(None)
    started = perf_counter()
    await replayer.replay_workflow(history)
    return (perf_counter() - started) * 1_000
