"""(i) Runs that go on side by side: how many iterations a second both sides come to, in turn."""

import asyncio
from statistics import median
from time import perf_counter

from bench.figures import Figure, ratio_of
from bench.rig import Rig, Side

RUNS = 20
ITERATIONS = 20
MAX_RATIO = 1.25
"""Ours take at most so much longer: 0.8 of the floor's throughput."""


async def measure(rig: Rig, pairs: int) -> list[Figure]:
    sides = (rig.ours, rig.floor, rig.phased)
    taken = [[await _seconds(side) for side in sides] for _ in range(pairs)]
    ours, floor, _ = (RUNS * ITERATIONS / median(side) for side in zip(*taken, strict=True))
    what = f"iterations a second of {RUNS} runs, median of {pairs} pairs"
    slower, beside_phased = (median(times[0] / times[other] for times in taken) for other in (1, 2))
    return [
        Figure("i", what, "", ours, floor),
        ratio_of("i", "time that they take", "", slower, 1.0, MAX_RATIO),
        ratio_of("i", "time that they take, beside the same activities", "", beside_phased, 1.0),
    ]


async def _seconds(side: Side) -> float:
    started = perf_counter()
    await asyncio.gather(*(side.run(ITERATIONS) for _ in range(RUNS)))
    return perf_counter() - started
