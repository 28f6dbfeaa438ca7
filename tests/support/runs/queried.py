"""Runs whose status is queried all the time, as by a console, a dashboard or an impatient person."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

from temporalio.client import Client, WorkflowHandle, WorkflowQueryFailedError
from temporalio.service import RPCError

LOOKERS, A_SECOND = 3, 8
"""Three observers send 8 queries a second each. They interleave, so that some arrive with a workflow task."""

PATIENCE = timedelta(seconds=20)


@asynccontextmanager
async def being_looked_at(client: Client, workflow_id: str, lookers: int = LOOKERS) -> AsyncGenerator[None]:
    """Query a run and its delegates until the block ends."""
    looking = [asyncio.create_task(_look(client.get_workflow_handle(workflow_id))) for _ in range(lookers)]
    looking.append(asyncio.create_task(_look_below(client, workflow_id)))
    try:
        yield
    finally:
        for task in looking:
            task.cancel()
        ended = await asyncio.gather(*looking, return_exceptions=True)
        assert [error for error in ended if not isinstance(error, asyncio.CancelledError | None)] == []


async def _look(handle: WorkflowHandle[Any, Any]) -> None:
    while True:
        await status_of(handle)
        await asyncio.sleep(1 / A_SECOND)


async def _look_below(client: Client, workflow_id: str) -> None:
    """Query the working delegates."""
    while True:
        await asyncio.sleep(1 / A_SECOND)
        described = await client.get_workflow_handle(workflow_id).describe()
        for child in described.raw_description.pending_children:
            await status_of(client.get_workflow_handle(child.workflow_id))


async def status_of(handle: WorkflowHandle[Any, Any]) -> Any:
    """Query once, and return None if there is no answer.

    A dead worker, or a run that is just continuing as new, is not the fault of the query. While nobody answers, the
    server keeps only one query of a run.
    """
    try:
        return await handle.query("status", rpc_timeout=PATIENCE)
    except (RPCError, WorkflowQueryFailedError):
        return None
