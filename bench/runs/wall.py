"""(b) Wall time of an iteration, both sides in turn, so that the machine's load affects both."""

from statistics import median
from time import perf_counter

from bench.figures import Figure
from bench.sides.rig import Rig, Side

ITERATIONS = 100
MAX_RATIO = 1.3


async def measure(rig: Rig, pairs: int) -> list[Figure]:
    ours: list[float] = []
    floor: list[float] = []
    for _ in range(pairs):
        ours.append(await _ms_per_iteration(rig.ours))
        floor.append(await _ms_per_iteration(rig.floor))
    ratio = median(a / b for a, b in zip(ours, floor, strict=True))
    what = f"iteration, median of {pairs} pairs of {ITERATIONS}"
    return [Figure("b", what, "ms", median(ours), median(floor), ratio, MAX_RATIO)]


async def _ms_per_iteration(side: Side) -> float:
    started = perf_counter()
    await side.run(ITERATIONS)
    return (perf_counter() - started) * 1_000 / ITERATIONS
