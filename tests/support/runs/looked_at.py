"""Runs that somebody looks at all the time, as a console, a dashboard or an impatient person does."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

from temporalio.client import Client, WorkflowHandle, WorkflowQueryFailedError
from temporalio.service import RPCError

LOOKERS, A_SECOND = 3, 8
"""Together 24 looks a second; in between each other, so that some always come with a workflow task."""

PATIENCE = timedelta(seconds=20)


@asynccontextmanager
async def being_looked_at(client: Client, workflow_id: str, lookers: int = LOOKERS) -> AsyncGenerator[None]:
    """Look at a run, and at the runs that it delegates to, until the block ends."""
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
    """Look at the delegates that are at work."""
    while True:
        await asyncio.sleep(1 / A_SECOND)
        described = await client.get_workflow_handle(workflow_id).describe()
        for child in described.raw_description.pending_children:
            await status_of(client.get_workflow_handle(child.workflow_id))


async def status_of(handle: WorkflowHandle[Any, Any]) -> Any:
    """Ask once; None where there is no answer.

    A worker that is dead, or a run that is just continuing as new, is no fault of the looker's; and while nobody
    answers the server keeps one query of a run only.
    """
    try:
        return await handle.query("status", rpc_timeout=PATIENCE)
    except (RPCError, WorkflowQueryFailedError):
        return None
