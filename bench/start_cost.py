"""(j) Processor time of this process, in which client and both workers are: what a start costs, and an iteration."""

from statistics import median
from time import process_time

from bench.figures import Figure, ratio_of
from bench.rig import Rig, Side

SHORT, LONG = 1, 21
"""Iterations of the runs that are compared: what they have in common is the start."""

MAX_START, MAX_ITERATION = 1.6, 1.25


async def measure(rig: Rig, rounds: int) -> list[Figure]:
    costs = [(await _costs(rig.ours), await _costs(rig.floor)) for _ in range(rounds)]
    ours_start, ours_iteration, floor_start, floor_iteration = (
        median(cost[side][part] for cost in costs) for side in (0, 1) for part in (0, 1)
    )
    return [
        ratio_of("j", f"start, median of {rounds}, ms of processor", "", ours_start, floor_start, MAX_START),
        ratio_of("j", "iteration, ms of processor", "", ours_iteration, floor_iteration, MAX_ITERATION),
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
