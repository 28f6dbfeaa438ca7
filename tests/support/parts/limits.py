"""A hanging test is cancelled before pytest's own limit, so that later tests in its process are not affected."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from functools import wraps
from inspect import iscoroutinefunction
from typing import Any

import pytest

AHEAD_S = 30.0
"""Seconds before pytest's own limit, whose signal stops any running task and may leave the test hanging."""


def cancel_in_time(item: pytest.Function) -> None:
    """Cancel an async test when its time is up. The traceback shows what it waited for.

    It is called during the setup of the test, so the time of its fixtures counts.
    """
    marked = item.get_closest_marker("timeout")
    limit_s = float(marked.args[0] if marked else item.config.getini("timeout"))
    if iscoroutinefunction(item.obj):
        item.obj = _until(time.monotonic() + limit_s - AHEAD_S, item.obj)


def _until(deadline: float, test: Callable[..., Awaitable[None]]) -> Callable[..., Awaitable[None]]:
    @wraps(test)
    async def limited(*args: Any, **given: Any) -> None:
        left_s = max(deadline - time.monotonic(), 1.0)
        async with asyncio.timeout(left_s):
            await test(*args, **given)

    return limited
