"""Threads for blocking work: a pool for each subject, and a new thread for each call of a function.

`asyncio.to_thread` has one small pool for everything. Here, work of one subject takes no thread from another, work can
be stopped with its call, and a thread that never ends blocks no pool.
"""

import asyncio
import logging
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from contextvars import copy_context
from functools import partial
from threading import Lock
from typing import Concatenate, Generic, ParamSpec, TypeVar

from orga.activities.ports import ToolError

P = ParamSpec("P")
T = TypeVar("T")


class Threads:
    """A bounded number of threads for one subject. Further work waits, and takes no thread from another subject."""

    def __init__(self, subject: str, max_threads: int) -> None:
        self._pool = ThreadPoolExecutor(max_threads, thread_name_prefix=subject)

    async def run(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Return the result of `work`. Cancelling ends the wait. Work that has begun goes on. Other work is dropped."""
        call = partial(copy_context().run, work, *args, **kwargs)
        return await asyncio.get_running_loop().run_in_executor(self._pool, call)


class ThreadStopped(Exception):
    """The thread's call was cancelled."""


class StopSignal:
    """Shows a thread whether its call was cancelled. Whichever comes first wins: the stop, or the thread's effect."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._is_stopped = self._is_acting = False

    def check(self) -> None:
        if self._is_stopped:
            raise ThreadStopped

    def begin_effect(self) -> None:
        """Announce the step that has an effect outside. Raise ThreadStopped if the call was cancelled before."""
        with self._lock:
            self.check()
            self._is_acting = True

    def stop(self) -> bool:
        """Stop the thread before it acts, and return whether it has already begun to act."""
        with self._lock:
            self._is_stopped = True
            return self._is_acting


async def run_stoppable(
    threads: Threads, work: Callable[Concatenate[StopSignal, P], T], *args: P.args, **kwargs: P.kwargs
) -> T:
    """Return the result of `work`. Cancelling stops work that has not acted yet. The end of other work is awaited."""
    stop = StopSignal()
    thread = asyncio.ensure_future(threads.run(work, stop, *args, **kwargs))
    try:
        return await asyncio.shield(thread)
    except asyncio.CancelledError:
        if not stop.stop():
            thread.cancel()
            raise
    while not thread.done():
        with suppress(asyncio.CancelledError):  # a second cancellation must not report a thread that acts as stopped
            await asyncio.wait((thread,))
    return thread.result()


MAX_ABANDONED_THREADS = 4
"""Threads of one function that may run on after their calls. Each can slow the worker down, so more are refused."""

_ABANDONED_WARNING = (
    "%s: its thread goes on after the call was cut off, and cannot be stopped; "
    'declare it blocking: @tool(blocking=True), or isolation = "process" under [tools.options.%s]'
)

_log = logging.getLogger(__name__)


class OwnThreads(Generic[T]):
    """A new thread for each call of one function."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._abandoned: list[Future[T]] = []

    async def run(self, work: Callable[[], T]) -> T:
        """Return the result of `work`. Cancelling never ends the thread. Raise ToolError if too many threads run on."""
        self._abandoned = [outcome for outcome in self._abandoned if not outcome.done()]
        if len(self._abandoned) >= MAX_ABANDONED_THREADS:
            text = f"{len(self._abandoned)} earlier calls of {self._name} still block their threads"
            remedy = "declare it blocking: @tool(blocking=True)"
            raise ToolError(f"{text}; {remedy}", kind="ThreadsLeftBehind", retryable=True, acted="no")
        outcome: Future[T] = Future()
        outcome.set_running_or_notify_cancel()
        context = copy_context()
        name = f"tool {self._name}"
        threading.Thread(target=context.run, args=(_resolve_future, outcome, work), name=name, daemon=True).start()
        try:
            return await asyncio.wrap_future(outcome)
        except asyncio.CancelledError:
            if not outcome.done():
                self._abandoned.append(outcome)
                _log.warning(_ABANDONED_WARNING, self._name, self._name)
            raise


def _resolve_future(outcome: Future[T], work: Callable[[], T]) -> None:
    try:
        outcome.set_result(work())
    except BaseException as error:
        outcome.set_exception(error)
