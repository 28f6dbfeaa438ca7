"""Threads for single calls. One that never ends takes no place in a pool, and the process can exit without it."""

import asyncio
import logging
import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextvars import copy_context
from typing import Generic, TypeVar

from orga.activities.ports import ToolError

T = TypeVar("T")

MAX_ABANDONED_THREADS = 4
"""Threads of one function that may run on after their calls. Each can slow the worker down, so more are refused."""

_ABANDONED_WARNING = (
    "%s: its thread goes on after the call was cut off, and cannot be stopped; "
    'declare it blocking: @tool(blocking=True), or isolation = "process" under [tools.options.%s]'
)

_log = logging.getLogger(__name__)


class OwnThreads(Generic[T]):
    """The threads of one function."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._left_behind: list[Future[T]] = []

    async def run(self, work: Callable[[], T]) -> T:
        """Return what `work` returns. Cancelling ends the wait, never the thread.

        Raises:
            ToolError: Kind ThreadsLeftBehind. Too many threads run on already.
        """
        self._refuse_too_many()
        outcome: Future[T] = Future()
        outcome.set_running_or_notify_cancel()
        context = copy_context()
        name = f"tool {self._name}"
        threading.Thread(target=context.run, args=(_resolve_future, outcome, work), name=name, daemon=True).start()
        try:
            return await asyncio.wrap_future(outcome)
        except asyncio.CancelledError:
            if not outcome.done():
                self._left_behind.append(outcome)
                _log.warning(_ABANDONED_WARNING, self._name, self._name)
            raise

    def _refuse_too_many(self) -> None:
        self._left_behind = [outcome for outcome in self._left_behind if not outcome.done()]
        if len(self._left_behind) >= MAX_ABANDONED_THREADS:
            text = f"{len(self._left_behind)} earlier calls of {self._name} still block their threads; "
            raise ToolError(
                f"{text}declare it blocking: @tool(blocking=True)", kind="ThreadsLeftBehind", retryable=True, acted="no"
            )


def _resolve_future(outcome: Future[T], work: Callable[[], T]) -> None:
    try:
        outcome.set_result(work())
    except BaseException as error:
        outcome.set_exception(error)
