"""A question that is asked a second time while the first still waits: the server loses one now and then.

A worker's answer to a query that the server has just handed to somebody else is turned away ("query task not found",
server 1.29.1), and who asked waits until the limit. A query changes nothing, so two are as good as one.
"""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import TypeVar

T = TypeVar("T")

ASKED_AGAIN_AFTER = timedelta(seconds=3)
"""A worker that has the run at hand answers within milliseconds; one that replays it first, within seconds."""


async def hedged(
    ask: Callable[[timedelta], Awaitable[T]], within: timedelta, after: timedelta = ASKED_AGAIN_AFTER
) -> T:
    """Return the first answer to a question that is asked once more after a while.

    Args:
        ask: Asks, and gives up after the time it gets.
        within: How long all of it may take.
        after: How long the first may wait alone.

    Raises:
        Exception: As the first raises, once no other answer can come.
    """
    asked = [asyncio.ensure_future(ask(within))]
    try:
        await asyncio.wait(asked, timeout=after.total_seconds())
        if not asked[0].done():
            asked.append(asyncio.ensure_future(ask(within - after)))
        for answer in asyncio.as_completed(asked):
            try:
                return await answer
            except Exception:
                continue
        return await asked[0]
    finally:
        for question in asked:
            question.cancel()
