"""A watch for work that blocks an event loop."""

import asyncio
import gc
import time
from collections.abc import Awaitable

LIMIT_S = 1.0


async def longest_pause(work: Awaitable[object]) -> float:
    """Return the longest time in seconds that this process worked while a ticker on the same loop could not run.

    The time is processor time. On a busy machine a ticker is late even if nothing in this process blocks it.
    """
    longest, at, over = 0.0, time.process_time(), False

    async def tick() -> None:
        nonlocal longest, at
        while not over:
            await asyncio.sleep(0.005)
            now = time.process_time()
            longest, at = max(longest, now - at), now

    ticker = asyncio.create_task(tick())
    await asyncio.sleep(0.01)
    try:
        await work
    finally:
        over = True
        await ticker
    return longest


def growth(work: object, text: str, before: str = "") -> float:
    """Return the factor by which `work` takes longer for eight times as much text. Each is the best of five.

    The factor is about 8 if the time is linear, and 64 if it is quadratic. The garbage collector is off, because its
    work grows with the test process and not with the input.
    """
    given = [before + text * (size // len(text)) for size in (8_000, 64_000)]
    gc.collect()
    gc.disable()
    try:
        rounds = [[_spent_s(work, each) for each in given] for _ in range(5)]
    finally:
        gc.enable()
    small, large = (min(times) for times in zip(*rounds, strict=True))
    return large / max(small, 1e-3)


def _spent_s(work: object, given: str) -> float:
    assert callable(work)
    began = time.process_time()
    work(given)
    return time.process_time() - began
