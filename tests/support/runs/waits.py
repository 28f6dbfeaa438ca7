"""Waits until a run exists, is in a phase, or is paused."""

from typing import Any

from temporalio.client import WorkflowHandle
from temporalio.service import RPCError

from tests.support.hold import wait_until


async def wait_until_known(handle: WorkflowHandle[Any, Any]) -> None:
    """Wait until the server knows the run, because its parent starts a delegate at some time."""

    async def exists() -> bool:
        try:
            await handle.describe()
        except RPCError:
            return False
        return True

    await wait_until(exists)


async def wait_for_phase(handle: WorkflowHandle[Any, Any], phase: str) -> None:
    """Wait until the run is in a phase. `paused` counts only when the run has stopped."""

    async def is_there() -> bool:
        return (await handle.query("status"))["phase"] == phase

    await wait_until(is_there)


async def wait_until_paused(handle: WorkflowHandle[Any, Any]) -> None:
    """Wait until the run has stopped because it is paused."""
    await wait_for_phase(handle, "paused")
