"""Resets: a run that goes on as another from an earlier point of its history."""

import uuid
from collections.abc import Sequence
from typing import Any

from google.protobuf.field_mask_pb2 import FieldMask
from temporalio.api.common.v1 import Payloads, WorkflowExecution
from temporalio.api.deployment.v1 import WorkerDeploymentVersion
from temporalio.api.enums.v1 import ResetReapplyExcludeType
from temporalio.api.workflow.v1 import PostResetOperation, VersioningOverride, WorkflowExecutionOptions
from temporalio.api.workflowservice.v1 import (
    ResetWorkflowExecutionRequest,
    UpdateWorkflowExecutionOptionsRequest,
)
from temporalio.client import Client
from temporalio.service import RPCError, RPCStatusCode

from client.boundaries import Boundary

_OVERRIDE = FieldMask(paths=["versioning_override"])
_NO_WORKER = WorkerDeploymentVersion(deployment_name="orga-held", build_id="held")
_NEVER_AGAIN = (ResetReapplyExcludeType.RESET_REAPPLY_EXCLUDE_TYPE_CANCEL_REQUEST,)
"""A cancellation would end the run where it ended before."""
_INTERVENTIONS = (
    ResetReapplyExcludeType.RESET_REAPPLY_EXCLUDE_TYPE_SIGNAL,
    ResetReapplyExcludeType.RESET_REAPPLY_EXCLUDE_TYPE_UPDATE,
)


async def reset_to(client: Client, workflow_id: str, run_id: str) -> str:
    """Return the id of the run that goes on in this one's place, or nothing when it was not reset."""
    try:
        described = await client.get_workflow_handle(workflow_id, run_id=run_id).describe()
    except RPCError as error:
        if error.status == RPCStatusCode.NOT_FOUND:
            return ""
        raise
    return described.raw_description.workflow_extended_info.reset_run_id


async def reset(client: Client, boundary: Boundary, signal: str, argument: Any, *, keeps_interventions: bool) -> str:
    """Let the run go on from the boundary, live or closed, and return the id of the new run.

    Its first workflow task sees the signal, behind the interventions that the server delivers again. Servers that
    cannot send it with the reset (1.29 cannot) hold the run meanwhile: no worker has the version that it is pinned to.
    """
    payloads = Payloads(payloads=await client.data_converter.encode([argument]))
    with_signal = PostResetOperation(
        signal_workflow=PostResetOperation.SignalWorkflow(signal_name=signal, input=payloads)
    )
    try:
        return await _reset(client, boundary, with_signal, keeps_interventions=keeps_interventions)
    except RPCError as error:
        if error.status != RPCStatusCode.INVALID_ARGUMENT or "post reset operation" not in error.message:
            raise
    run_id = await _reset(client, boundary, _held(), keeps_interventions=keeps_interventions)
    try:
        await client.get_workflow_handle(boundary.workflow_id, run_id=run_id).signal(signal, argument)
    finally:
        await _let_go(client, boundary.workflow_id, run_id)
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
        )
    )
    return response.run_id


def _held() -> PostResetOperation:
    pinned = VersioningOverride.PinnedOverride(
        behavior=VersioningOverride.PinnedOverrideBehavior.PINNED_OVERRIDE_BEHAVIOR_PINNED, version=_NO_WORKER
    )
    options = WorkflowExecutionOptions(versioning_override=VersioningOverride(pinned=pinned))
    update = PostResetOperation.UpdateWorkflowOptions(workflow_execution_options=options, update_mask=_OVERRIDE)
    return PostResetOperation(update_workflow_options=update)


async def _let_go(client: Client, workflow_id: str, run_id: str) -> None:
    await client.workflow_service.update_workflow_execution_options(
        UpdateWorkflowExecutionOptionsRequest(
            namespace=client.namespace,
            workflow_execution=WorkflowExecution(workflow_id=workflow_id, run_id=run_id),
            workflow_execution_options=WorkflowExecutionOptions(),
            update_mask=_OVERRIDE,
        )
    )
