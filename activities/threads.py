"""Threads by subject. `asyncio.to_thread` has one small pool for all, so slow work in it delays everybody."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from functools import partial
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


class Threads:
    """A bounded number of threads for one subject. Further work waits, and takes no thread from another subject."""

    def __init__(self, subject: str, most: int) -> None:
        self._pool = ThreadPoolExecutor(most, thread_name_prefix=subject)

    async def run(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Return the result of `work`. Cancelling ends the wait and drops work that has not begun. A thread runs on."""
        done = partial(copy_context().run, work, *args, **kwargs)
        return await asyncio.get_running_loop().run_in_executor(self._pool, done)
