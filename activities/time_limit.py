"""The time limit of a call, kept in the worker: the server's own stops no code."""

import asyncio
import time
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any, TypeVar

from temporalio import activity

from orga.activities.ports import ToolError
from orga.workflows.types.tools import REPORT_S, TIME_LIMIT, ToolSpec

T = TypeVar("T")

ENDING_S = 4.0
"""What a call gets to end in once it is cancelled; a run waits five seconds for it."""


class LeftBehind(ToolError):
    """A call that was cut off at its time limit, and could not be stopped."""


_left_behind: set[asyncio.Task[Any]] = set()
"""Nothing else might hold on to a task that nobody awaits."""


async def within_limit(work: Coroutine[Any, Any, T], spec: ToolSpec, *, is_awaited: bool = False) -> T:
    """Return what `work` returns; leave it behind where it ignores that it is cancelled.

    Args:
        work: The call.
        spec: Of its tool.
        is_awaited: Whether one that is cancelled has all of its time to end in: it must not act behind its report.

    Raises:
        ToolError: Kind TimeLimit; `LeftBehind` where what it began goes on.
    """
    limit_s = _limit_s()
    began, outer = time.monotonic(), asyncio.current_task()
    call = asyncio.create_task(_contain(work), name=outer.get_name() if outer else None)
    try:
        done, _ = await asyncio.wait((call,), timeout=limit_s)
    except asyncio.CancelledError:
        if is_awaited:
            await _outlast(call, spec, limit_s - (time.monotonic() - began))
        if not await _cancel(call, spec.name, REPORT_S / 2 if is_awaited else ENDING_S):
            raise
        return call.result()
    if not done:
        has_ended = await _cancel(call, spec.name, REPORT_S / 2)
        is_stopped = has_ended and spec.options.isolation != "thread"
        raise (ToolError if is_stopped else LeftBehind)(_text(spec, limit_s), kind=TIME_LIMIT, retryable=True)
    return call.result()


async def _contain(work: Coroutine[Any, Any, T]) -> T:
    """Await it; a call that wants to end the process would end the worker from within a task."""
    try:
        return await work
    except (SystemExit, KeyboardInterrupt) as error:
        raise ToolError(f"{type(error).__name__}: {error}", kind=type(error).__name__, acted="maybe") from None


def _limit_s() -> float:
    """Return the call's own limit: the server waits longer, for the report."""
    waits = activity.info().start_to_close_timeout
    return max(waits.total_seconds() - REPORT_S, 0.0) if waits else float("inf")


async def _outlast(call: asyncio.Task[Any], spec: ToolSpec, left_s: float) -> None:
    """Cancel the call and wait for its end until its time is up, or until the worker stops.

    A thread is not told: cancelling would end the wait for it, and nothing else.
    """
    if spec.options.isolation != "thread":
        call.cancel()
    stopping = asyncio.ensure_future(activity.wait_for_worker_shutdown())
    with suppress(asyncio.CancelledError):
        await asyncio.wait((call, stopping), timeout=max(left_s, 0.0), return_when=asyncio.FIRST_COMPLETED)
    stopping.cancel()


async def _cancel(call: asyncio.Task[Any], name: str, grace_s: float) -> bool:
    """Cancel the call and return whether it has ended."""
    call.cancel()
    done, _ = await asyncio.wait((call,), timeout=grace_s)
    if not done:
        activity.logger.warning("%s has not ended though it was cancelled, and is left behind", name)
        _left_behind.add(call)
    call.add_done_callback(_forgotten)
    return bool(done)


def _forgotten(call: asyncio.Task[Any]) -> None:
    _left_behind.discard(call)
    if not call.cancelled():
        call.exception()  # has been seen: asyncio need not complain


def _text(spec: ToolSpec, limit_s: float) -> str:
    text = f"{spec.name} took longer than its {limit_s:g} s"
    if spec.options.isolation == "thread":
        return f"{text} and its thread cannot be stopped; declare it blocking: @tool(blocking=True)"
    return text
