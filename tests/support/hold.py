"""A place where a scripted model or a tool stands still until the test lets it go on."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from activities.ports import ModelRequest
from workflows.types.messages import Reply

T = TypeVar("T")

PATIENCE_S = 30.0
"""How long a test waits for what must happen; a loaded machine needs it, a passing test never does."""


class Hold:
    """`entered` once something waits here, `cancelled` once the wait was cut short, until `go`."""

    def __init__(self) -> None:
        self.entered = asyncio.Event()
        self.cancelled = asyncio.Event()
        self.go = asyncio.Event()

    async def then(self, value: T) -> T:
        """Stand still, then return `value`."""
        self.entered.set()
        try:
            await self.go.wait()
        except asyncio.CancelledError:
            self.cancelled.set()
            raise
        return value

    def step(self, reply: Reply) -> Callable[[ModelRequest], Awaitable[Reply]]:
        """Return a model's step that stands still, then replies."""
        return lambda request: self.then(reply)

    async def reached(self) -> None:
        """Wait until something stands here."""
        await happens(self.entered)


async def happens(event: asyncio.Event, within_s: float = PATIENCE_S) -> None:
    """Wait for an event that must come."""
    async with asyncio.timeout(within_s):
        await event.wait()


async def until(condition: Callable[[], Awaitable[bool]], within_s: float = PATIENCE_S) -> None:
    """Ask again and again until the condition holds."""
    async with asyncio.timeout(within_s):
        while not await condition():
            await asyncio.sleep(0.05)
