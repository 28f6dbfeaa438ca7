"""(f) The cost of decisions per iteration: the workflow's pure functions, in a replay of a run with many decisions.

A profiler gives their share of the workflow code. The time of the whole is measured without one.
"""

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from cProfile import Profile
from statistics import median
from time import thread_time
from types import CodeType
from typing import ParamSpec, TypeVar

from temporalio.client import WorkflowHistory

from bench.figures import Figure, ratio_of
from bench.runs.busy import busy_run
from bench.sides.rig import Rig, Side

P = ParamSpec("P")
T = TypeVar("T")

ITERATIONS = 200
MAX_RATIO = 1.25
"""Relative to the whole workflow code of the floor, SDK included, because the machine's load changes both alike."""
PURE = ("/workflows/decisions/", "/workflows/types/")


async def measure(rig: Rig, replays: int) -> list[Figure]:
    """Return the figures: the fastest of all replays, taken in turn, because disturbances only add time."""
    busy = await busy_run(rig.ours.client, ITERATIONS)
    bare = await (await rig.floor.run(ITERATIONS)).fetch_history()
    shares: list[float] = []
    for _ in range(replays):
        profile = Profile()
        await _replayed(rig.ours, busy, profile)
        shares.append(_pure_share(profile))
    pairs = [(await _replayed(rig.ours, busy), await _replayed(rig.floor, bare)) for _ in range(replays)]
    ours, floor = (_each_ms(min(times)) for times in zip(*pairs, strict=True))
    return [
        Figure("f", "workflow code of a busy iteration, SDK included", "ms", ours, floor),
        ratio_of("f", "decisions of it", "ms", median(shares) * ours, floor, MAX_RATIO),
    ]


def _each_ms(seconds: float) -> float:
    return seconds * 1_000 / ITERATIONS


async def _replayed(side: Side, history: WorkflowHistory, profile: Profile | None = None) -> float:
    """Return the processor time of the workflow tasks in a replay, in seconds."""
    tasks = _TimedTasks(profile)
    await side.replayer(tasks).replay_workflow(history)
    return tasks.spent_s


def _pure_share(profile: Profile) -> float:
    """Return the share of pure functions in the whole profile. Each counts where other code calls it."""
    entries = profile.getstats()
    callers = [entry for entry in entries if isinstance(entry.code, CodeType) and not _is_pure(entry.code)]
    calls = [call for entry in callers for call in entry.calls or ()]
    pure = sum(call.totaltime for call in calls if isinstance(call.code, CodeType) and _is_pure(call.code))
    return pure / sum(entry.inlinetime for entry in entries)


def _is_pure(code: CodeType) -> bool:
    return any(folder in code.co_filename for folder in PURE) and code.co_name != "<module>"


class _TimedTasks(ThreadPoolExecutor):
    """Runs workflow tasks one after the other, adds up their time, and profiles them if there is a profile."""

    def __init__(self, profile: Profile | None) -> None:
        super().__init__(max_workers=1)
        self._profile = profile
        self.spent_s = 0.0

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        def timed() -> T:
            began = thread_time()
            try:
                return self._profile.runcall(fn, *args, **kwargs) if self._profile else fn(*args, **kwargs)
            finally:
                self.spent_s += thread_time() - began

        return super().submit(timed)
