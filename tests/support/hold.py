"""A place where a scripted model or a tool blocks until the test releases it."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from temporalio.service import RPCError, RPCStatusCode

from orga.activities.ports import ModelRequest
from orga.workflows.types.messages import Reply

T = TypeVar("T")

PATIENCE_S = 30.0
"""How long a test waits for an event that must happen. A loaded machine needs it; otherwise no test waits so long."""

GIVEN_UP = {RPCStatusCode.CANCELLED, RPCStatusCode.DEADLINE_EXCEEDED, RPCStatusCode.UNAVAILABLE}


class Hold:
    """`entered` is set when something blocks here, `cancelled` when its wait is cancelled. `go` releases it."""

    def __init__(self) -> None:
        self.entered = asyncio.Event()
        self.cancelled = asyncio.Event()
        self.go = asyncio.Event()

    async def then(self, value: T) -> T:
        """Block until released, then return `value`."""
        self.entered.set()
        try:
            await self.go.wait()
        except asyncio.CancelledError:
            self.cancelled.set()
            raise
        return value

    def step(self, reply: Reply) -> Callable[[ModelRequest], Awaitable[Reply]]:
        """Return a model step that blocks, then replies."""
        return lambda request: self.then(reply)

    async def reached(self) -> None:
        """Wait until something blocks here."""
        await wait_for_event(self.entered)


async def wait_for_event(event: asyncio.Event, within_s: float = PATIENCE_S) -> None:
    """Wait for an event that must happen."""
    async with asyncio.timeout(within_s):
        await event.wait()


async def wait_until(condition: Callable[[], Awaitable[bool]], within_s: float = PATIENCE_S) -> None:
    """Check repeatedly until the condition holds.

    A query that the server gave up, for example because a slow worker has just started, is repeated.
    """
    async with asyncio.timeout(within_s):
        while not await _condition_value(condition):
            await asyncio.sleep(0.05)


async def _condition_value(condition: Callable[[], Awaitable[bool]]) -> bool:
    try:
        return await condition()
    except RPCError as error:
        if error.status not in GIVEN_UP:
            raise
        return False
