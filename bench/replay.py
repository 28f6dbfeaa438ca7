"""(d) How long a history of 200 iterations takes to replay."""

from statistics import median
from time import perf_counter

from temporalio.client import WorkflowHistory

from bench.figures import Figure
from bench.rig import Rig, Side

ITERATIONS = 200
MAX_RATIO = 1.5


async def measure(rig: Rig, pairs: int) -> list[Figure]:
    histories = {side.name: await (await side.run(ITERATIONS)).fetch_history() for side in (rig.ours, rig.floor)}
    ours: list[float] = []
    floor: list[float] = []
    for _ in range(pairs + 1):
        ours.append(await _ms(rig.ours, histories["ours"]))
        floor.append(await _ms(rig.floor, histories["floor"]))
    del ours[0], floor[0]
    ratio = median(a / b for a, b in zip(ours, floor, strict=True))
    what = f"replay of {ITERATIONS} iterations, median of {pairs} pairs"
    return [Figure("d", what, "ms", median(ours), median(floor), ratio, MAX_RATIO)]


async def _ms(side: Side, history: WorkflowHistory) -> float:
    replayer = side.replayer(None)
    started = perf_counter()
    await replayer.replay_workflow(history)
    return (perf_counter() - started) * 1_000
