"""Work in a thread that ends with its call. Cancelling a call alone only ends the wait for its thread."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from threading import Lock
from typing import Concatenate, ParamSpec, TypeVar

from orga.activities.threads import Threads

P = ParamSpec("P")
T = TypeVar("T")


class ThreadStopped(Exception):
    """The thread's call was cancelled."""


class StopSignal:
    """Tells a thread if its call was cancelled."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._is_stopped = self._is_acting = False

    def check(self) -> None:
        """Raise `ThreadStopped` if the call was cancelled."""
        if self._is_stopped:
            raise ThreadStopped

    def begin_effect(self) -> None:
        """Announce the step that others can see. From now on, cancellation waits for its end.

        Raises:
            ThreadStopped: The call was cancelled.
        """
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
    """Return the result of `work`. If it is cancelled before it acts, it never acts. Later its end is awaited."""
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
