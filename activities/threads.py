"""Threads by subject: `asyncio.to_thread` has one small pool for all, and what holds its threads holds everybody."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from functools import partial
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


class Threads:
    """At most so many threads for one subject; what comes beyond waits, and is missing to no other subject."""

    def __init__(self, subject: str, most: int) -> None:
        self._pool = ThreadPoolExecutor(most, thread_name_prefix=subject)

    async def run(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Return what `work` returns. Cancelling ends the wait, and what has not begun; a thread goes on to its end."""
        done = partial(copy_context().run, work, *args, **kwargs)
        return await asyncio.get_running_loop().run_in_executor(self._pool, done)
