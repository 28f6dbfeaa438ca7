"""Live delegates of a past that a rewind drops. They are aborted, and the rewind waits for their end."""

import asyncio
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime

from temporalio.api.enums.v1 import EventType
from temporalio.api.history.v1 import HistoryEvent
from temporalio.client import Client, WorkflowExecutionStatus, WorkflowFailureError
from temporalio.service import RPCError, RPCStatusCode

from orga.client.errors import PastRefused, RunEnded, RunNotFound
from orga.client.history.chain import histories, run_chain
from orga.client.runs.exchange import Exchange
from orga.workflows.types.tool_calls.delegation import delegate_activity_id

GRACE_S = 75.0
"""Seconds for all of them to end: running calls have five seconds, and then a run has 60 to compensate."""


@dataclass(frozen=True)
class LiveDelegate:
    workflow_id: str
    iteration: int
    """Iteration of the run that delegated to it."""
    at: datetime


async def live_delegates(client: Client, events: Iterable[HistoryEvent]) -> tuple[LiveDelegate, ...]:
    """Return the live delegates that these events started, and their own live delegates, even if those above have
    ended.
    """
    found: list[LiveDelegate] = []
    for event in events:
        if event.event_type != EventType.EVENT_TYPE_START_CHILD_WORKFLOW_EXECUTION_INITIATED:
            continue
        workflow_id = event.start_child_workflow_execution_initiated_event_attributes.workflow_id
        if await _is_live(client, workflow_id):
            iteration = int(delegate_activity_id(workflow_id).partition(".")[0] or 0)
            found.append(LiveDelegate(workflow_id, iteration, event.event_time.ToDatetime(tzinfo=UTC)))
        found += await live_delegates(client, await _events(client, workflow_id))
    return tuple(found)


async def abort_delegates(client: Client, delegates: Sequence[LiveDelegate], why: str) -> None:
    """Abort delegates and wait for their end, as they may compensate. Raise NoAnswer or OrgaError if that fails."""
    runs = [Exchange(client, delegate.workflow_id) for delegate in delegates]
    try:
        async with asyncio.timeout(GRACE_S):
            for run in runs:
                await _abort(run, why)
            for run in runs:
                with suppress(WorkflowFailureError):
                    await run.workflow.result()
    except TimeoutError:
        ids = ", ".join(delegate.workflow_id for delegate in await _find_live(client, delegates))
        raise PastRefused(
            f"a delegate has not ended {GRACE_S:g} s after its abort: {ids}; `orga status` shows what it does, "
            "try again once it has ended"
        ) from None


async def _abort(run: Exchange, why: str) -> None:
    with suppress(RunEnded):
        await run.require_worker()
        await run.signal("abort", why)


async def _find_live(client: Client, delegates: Sequence[LiveDelegate]) -> list[LiveDelegate]:
    return [delegate for delegate in delegates if await _is_live(client, delegate.workflow_id)]


async def _is_live(client: Client, workflow_id: str) -> bool:
    try:
        described = await client.get_workflow_handle(workflow_id).describe()
    except RPCError as error:
        if error.status == RPCStatusCode.NOT_FOUND:
            return False
        raise
    return described.status == WorkflowExecutionStatus.RUNNING


async def _events(client: Client, workflow_id: str) -> list[HistoryEvent]:
    """Return all events of a run, or none if the server does not know it."""
    try:
        runs = await histories(client, await run_chain(client, workflow_id))
    except RunNotFound:
        return []
    return [event for run in runs for event in run.events]
