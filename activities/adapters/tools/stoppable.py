"""Work of a thread that ends with its call: cancelling a call ends the wait for its thread, and nothing else."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from threading import Lock
from typing import Concatenate, ParamSpec, TypeVar

from orga.activities.threads import Threads

P = ParamSpec("P")
T = TypeVar("T")


class ThreadStopped(Exception):
    """Nobody waits for the thread any more."""


class StopSignal:
    """What a thread asks whether it is still waited for."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._is_stopped = self._is_acting = False

    def check(self) -> None:
        """Raise `Stopped` if nobody waits any more."""
        if self._is_stopped:
            raise ThreadStopped

    def begin_to_act(self) -> None:
        """Take the step that others see, which is waited for from here on.

        Raises:
            Stopped: Nobody waits any more.
        """
        with self._lock:
            self.check()
            self._is_acting = True

    def stop(self) -> bool:
        """Keep the thread from acting; return whether it does so already."""
        with self._lock:
            self._is_stopped = True
            return self._is_acting


async def run_stoppable(
    threads: Threads, work: Callable[Concatenate[StopSignal, P], T], *args: P.args, **kwargs: P.kwargs
) -> T:
    """Return what `work` returns. Cancelled before it acts, it never does; after that, its end is waited for."""
    stop = StopSignal()
    thread = asyncio.ensure_future(threads.run(work, stop, *args, **kwargs))
    try:
        return await asyncio.shield(thread)
    except asyncio.CancelledError:
        if not stop.stop():
            thread.cancel()
            raise
    while not thread.done():
        with suppress(asyncio.CancelledError):  # a second one changes nothing: it would be told as stopped
            await asyncio.wait((thread,))
    return thread.result()
