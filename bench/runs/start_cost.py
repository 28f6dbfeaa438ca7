"""(j) The cost of a start and of an iteration: processor time of this process, which has client and both workers."""

from statistics import median
from time import process_time

from bench.figures import Figure, ratio_of
from bench.sides.rig import Rig, Side

SHORT, LONG = 1, 21
"""Iterations of the compared runs. The start is what they have in common."""

MAX_START, MAX_ITERATION = 1.8, 1.25


async def measure(rig: Rig, rounds: int) -> list[Figure]:
    sides = (rig.ours, rig.floor, rig.phased)
    costs = [[await _costs(side) for side in sides] for _ in range(rounds)]
    starts, iterations = ([median(cost[side][part] for cost in costs) for side in range(len(sides))] for part in (0, 1))
    start, iteration = f"start, median of {rounds}, ms of processor", "iteration, ms of processor"
    return [
        ratio_of("j", start, "", starts[0], starts[1], MAX_START),
        ratio_of("j", iteration, "", iterations[0], iterations[1], MAX_ITERATION),
        ratio_of("j", "start, floor with the same activities", "", starts[0], starts[2]),
        ratio_of("j", "iteration, floor with the same activities", "", iterations[0], iterations[2]),
    ]


async def _costs(side: Side) -> tuple[float, float]:
    """Return the cost of a start and of an iteration, in ms."""
    short, long = await _ms(side, SHORT), await _ms(side, LONG)
    iteration = (long - short) / (LONG - SHORT)
    return short - SHORT * iteration, iteration


async def _ms(side: Side, iterations: int) -> float:
    started = process_time()
    await side.run(iterations)
    return (process_time() - started) * 1_000
