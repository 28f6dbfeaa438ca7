"""Heartbeats beside the work: the server sees that it lives, and a cancellation finds its way in."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Any

from temporalio import activity

INTERVAL_S = 0.5
"""Between heartbeats; a cancellation is noticed with the answer to one."""

CHANGED_INTERVAL_S = 0.2
"""While there is something new to show."""


@asynccontextmanager
async def heartbeats(details: Callable[[], Any]) -> AsyncGenerator[None]:
    """Heartbeat with `details()` until the block ends; sooner where they changed.

    A local activity has no heartbeats, and what runs outside of one neither: then this does nothing.
    """
    if not activity.in_activity() or activity.info().is_local:
        yield
        return
    beat = asyncio.create_task(_beat(details))
    try:
        yield
    finally:
        beat.cancel()


async def _beat(details: Callable[[], Any]) -> None:
    last: Any = None
    while True:
        for _ in range(round(INTERVAL_S / CHANGED_INTERVAL_S)):
            await asyncio.sleep(CHANGED_INTERVAL_S)
            if details() != last:
                break
        last = details()
        activity.heartbeat(last)
