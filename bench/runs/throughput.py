"""(i) Iterations per second of parallel runs, both sides in turn."""

import asyncio
from statistics import median
from time import perf_counter

from bench.figures import Figure, ratio_of
from bench.sides.rig import Rig, Side

RUNS = 20
ITERATIONS = 20
MAX_RATIO = 1.25
"""Ours may take this much longer, which is 0.8 of the floor's throughput."""


async def measure(rig: Rig, pairs: int) -> list[Figure]:
    sides = (rig.ours, rig.floor, rig.phased)
    taken = [[await _seconds(side) for side in sides] for _ in range(pairs)]
    ours, floor, _ = (RUNS * ITERATIONS / median(side) for side in zip(*taken, strict=True))
    what = f"iterations a second of {RUNS} runs, median of {pairs} pairs"
    slower, phased_ratio = (median(times[0] / times[other] for times in taken) for other in (1, 2))
    return [
        Figure("i", what, "", ours, floor),
        ratio_of("i", "time", "", slower, 1.0, MAX_RATIO),
        ratio_of("i", "time, floor with the same activities", "", phased_ratio, 1.0),
    ]


async def _seconds(side: Side) -> float:
    started = perf_counter()
    await asyncio.gather(*(side.run(ITERATIONS) for _ in range(RUNS)))
    return perf_counter() - started
