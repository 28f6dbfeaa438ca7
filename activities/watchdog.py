"""Finds tasks that hold a worker's event loop for long, because no run of the worker makes progress meanwhile."""

import asyncio
import logging
import sys
import threading
import time
import traceback
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from temporalio import activity
from temporalio.worker import ActivityInboundInterceptor, ExecuteActivityInput, Interceptor

from orga.activities.instruments import record
from orga.workflows.types import telemetry_names as names

TICK_S = 0.1
"""Seconds between two looks at the loop."""

BLOCKED_S = 1.0
"""A longer block is logged, with the task and its line of code."""

_OWN_PATHS = ("/activities/", "/workflows/", "/client/", "/worker.py")

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class LoopBlock:
    """A period in which the loop was held."""

    seconds: float = 0.0
    task: str = ""
    """The task's name. For an activity: its type, id and run. Empty if the task ended before the thread looked."""
    location: str = ""
    """The function, its file and its line."""
    is_of_process: bool = False
    """True if no thread of the process ran: it was stopped, or the machine slept or was overloaded."""

    def __str__(self) -> str:
        """Return a text that continues "the worker's event loop was"."""
        if self.is_of_process:
            return f"stopped for {self.seconds:.1f} s together with its whole process"
        task = self.task or ("a task" if self.location else "a task that has ended")
        location = f", in {self.location}" if self.location else ""
        return f"held for {self.seconds:.1f} s by {task}{location}"


class Watchdog:
    def __init__(self, held_s: float = BLOCKED_S, report: Callable[[LoopBlock], None] = lambda block: None) -> None:
        """Log a warning for each block of more than `held_s`. Call `report` with those longer than all before."""
        self.longest = LoopBlock()
        """The longest block so far."""
        self._held_s = held_s
        self._report = report
        self._ticked_at = time.monotonic()
        self._seen = LoopBlock()
        """The task that held the loop when the thread last looked. Each tick clears it."""
        self._looked_at = time.monotonic()
        self._thread_pause_s = 0.0
        """The longest pause between two looks of the thread since the last tick, which no task of the loop causes."""
        self._stopping = threading.Event()

    @asynccontextmanager
    async def watch(self) -> AsyncGenerator["Watchdog"]:
        ticks = asyncio.create_task(self._measure_lag(), name="watchdog")
        watched = asyncio.get_running_loop(), threading.get_ident(), ticks
        threading.Thread(target=self._watch_from_thread, args=watched, daemon=True, name="watchdog").start()
        try:
            yield self
        finally:
            self._stopping.set()
            ticks.cancel()

    async def _measure_lag(self) -> None:
        while True:
            self._seen, self._thread_pause_s, self._ticked_at = LoopBlock(), 0.0, time.monotonic()
            worked_s = time.process_time()
            await asyncio.sleep(TICK_S)
            lag_s = max(time.monotonic() - self._ticked_at - TICK_S, 0.0)
            record(names.LOOP_LAG, lag_s)
            block = self._block(lag_s, time.process_time() - worked_s)
            if lag_s > self._held_s:
                record(names.LOOP_HELD, lag_s, {names.HELD_BY: block.task.partition(" ")[0] or "unknown"})
                _log.warning("the worker's event loop was %s", block)
            if lag_s > self.longest.seconds:
                self.longest = block
                if lag_s > self._held_s:
                    self._report(block)

    def _block(self, lag_s: float, worked_s: float) -> LoopBlock:
        """Return the block that a tick notices.

        Args:
            lag_s: How late the tick is.
            worked_s: Processor time of the whole process since the last tick. A task may keep the thread from running
                only while it computes.
        """
        pause_s = max(self._thread_pause_s, time.monotonic() - self._looked_at)
        if max(worked_s, lag_s - pause_s) < lag_s / 2:
            return LoopBlock(lag_s, is_of_process=True)
        return LoopBlock(lag_s, self._seen.task, self._seen.location)

    def _watch_from_thread(self, loop: asyncio.AbstractEventLoop, thread: int, ticks: "asyncio.Task[None]") -> None:
        while not self._stopping.wait(TICK_S):
            now = time.monotonic()
            self._thread_pause_s, self._looked_at = max(self._thread_pause_s, now - self._looked_at), now
            waited_s = time.monotonic() - self._ticked_at
            if waited_s > self._held_s / 2:  # early enough to see the task before it ends
                task = asyncio.current_task(loop)
                frame = sys._current_frames().get(thread)  # pyright: ignore[reportPrivateUsage]
                if task is not None and task is not ticks:  # otherwise the loop waits, or is about to tick
                    self._seen = LoopBlock(0.0, _task_name(task), _code_location(traceback.extract_stack(frame)))


class NamedTasks(Interceptor):
    """Names the task of each activity after its type, id and run."""

    def intercept_activity(self, next: ActivityInboundInterceptor) -> ActivityInboundInterceptor:
        return _TaskNamingInbound(next)


class _TaskNamingInbound(ActivityInboundInterceptor):
    async def execute_activity(self, input: ExecuteActivityInput) -> Any:
        info, task = activity.info(), asyncio.current_task()
        if task is not None:
            task.set_name(f"{info.activity_type} {info.activity_id} of {info.workflow_id}")
        return await super().execute_activity(input)


def _task_name(task: "asyncio.Task[Any]") -> str:
    """Return the name that somebody gave it, or else the function that it runs."""
    name = task.get_name()
    return name if not name.startswith("Task-") else getattr(task.get_coro(), "__qualname__", name)


def _code_location(stack: traceback.StackSummary) -> str:
    """Return the innermost line of our code, or else of any code."""
    ours = [frame for frame in stack if any(part in frame.filename for part in _OWN_PATHS)]
    frames = ours or stack
    if not frames:
        return ""
    frame = frames[-1]
    return f"{frame.name} ({frame.filename.rpartition('/')[2]}:{frame.lineno})"
