"""Resets: a run that goes on as another from an earlier point of its history."""

import uuid
from collections.abc import Sequence
from typing import Any

from temporalio.api.common.v1 import Payloads, WorkflowExecution
from temporalio.api.enums.v1 import EventType, ResetReapplyExcludeType
from temporalio.api.history.v1 import HistoryEvent
from temporalio.api.workflow.v1 import PostResetOperation
from temporalio.api.workflowservice.v1 import ResetWorkflowExecutionRequest
from temporalio.client import Client
from temporalio.service import RPCError, RPCStatusCode

from orga.client.history.boundaries import Boundary
from orga.client.history.values import RunValues, values_of
from orga.client.past.standstill import after_reset, let_go

_NEVER_AGAIN = (ResetReapplyExcludeType.RESET_REAPPLY_EXCLUDE_TYPE_CANCEL_REQUEST,)
"""A cancellation would end the run where it ended before."""
_INTERVENTIONS = (
    ResetReapplyExcludeType.RESET_REAPPLY_EXCLUDE_TYPE_SIGNAL,
    ResetReapplyExcludeType.RESET_REAPPLY_EXCLUDE_TYPE_UPDATE,
)


def reset_from(events: Sequence[HistoryEvent]) -> str:
    """Return the run that one was reset from which has not gone on since, or nothing."""
    reset_by = _reset_by(events)
    return reset_by.workflow_task_failed_event_attributes.base_run_id if reset_by else ""


async def finished(client: Client, boundary: Boundary, signal: str, argument: Any) -> str:
    """Send the signal to a run that stands at the boundary since a reset was cut short; return its id, or nothing."""
    run = client.get_workflow_handle(boundary.workflow_id)
    history = await run.fetch_history()
    events = history.events
    reset_by = _reset_by(events)
    if reset_by is None or reset_by.event_id != boundary.event_id:
        return ""
    signals = [e.workflow_execution_signaled_event_attributes for e in events[reset_by.event_id :]]
    own = values_of(client, history).own
    sent = [await own.decode(s.input.payloads) for s in signals if s.signal_name == signal]
    if [argument] not in sent:
        await run.signal(signal, argument)
    return (await run.describe()).run_id


def _reset_by(events: Sequence[HistoryEvent]) -> HistoryEvent | None:
    """Return the event that a reset left behind, unless the run has gone on since."""
    for event in reversed(events):
        if event.event_type == EventType.EVENT_TYPE_WORKFLOW_TASK_COMPLETED:
            return None
        if event.workflow_task_failed_event_attributes.base_run_id:
            return event
    return None


async def reset(client: Client, boundary: Boundary, signal: str, argument: Any, *, keeps_interventions: bool) -> str:
    """Let the run go on from the boundary, live or closed, and return the id of the new run.

    Its first workflow task sees the signal, behind the interventions that the server delivers again. Servers that
    cannot send it with the reset (1.29 cannot) let the run stand still meanwhile.
    """
    own = RunValues(client.data_converter, client.namespace, boundary.workflow_id).own
    payloads = Payloads(payloads=await own.encode([argument]))
    with_signal = PostResetOperation(
        signal_workflow=PostResetOperation.SignalWorkflow(signal_name=signal, input=payloads)
    )
    try:
        return await _reset(client, boundary, with_signal, keeps_interventions=keeps_interventions)
    except RPCError as error:
        if error.status != RPCStatusCode.INVALID_ARGUMENT or "post reset operation" not in error.message:
            raise
    run_id = await _reset(client, boundary, after_reset(), keeps_interventions=keeps_interventions)
    try:
        await client.get_workflow_handle(boundary.workflow_id, run_id=run_id).signal(signal, argument)
    finally:
        await let_go(client, boundary.workflow_id, run_id)
    return run_id


async def _reset(
    client: Client, boundary: Boundary, operation: PostResetOperation, *, keeps_interventions: bool
) -> str:
    excluded: Sequence[ResetReapplyExcludeType.ValueType] = _NEVER_AGAIN
    if not keeps_interventions:
        excluded = (*_NEVER_AGAIN, *_INTERVENTIONS)
    response = await client.workflow_service.reset_workflow_execution(
        ResetWorkflowExecutionRequest(
            namespace=client.namespace,
            workflow_execution=WorkflowExecution(workflow_id=boundary.workflow_id, run_id=boundary.run_id),
            reason=f"orga: to the end of iteration {boundary.iteration}",
            workflow_task_finish_event_id=boundary.event_id,
            request_id=str(uuid.uuid4()),
            reset_reapply_exclude_types=excluded,
            post_reset_operations=[operation],
            identity=client.identity,
        ),
        retry=True,
    )
    return response.run_id
