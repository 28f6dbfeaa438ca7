"""A run that stands still for a moment: it is pinned to a version that no worker has, so its tasks wait."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from google.protobuf.field_mask_pb2 import FieldMask
from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.deployment.v1 import WorkerDeploymentVersion
from temporalio.api.workflow.v1 import PostResetOperation, VersioningOverride, WorkflowExecutionOptions
from temporalio.api.workflowservice.v1 import UpdateWorkflowExecutionOptionsRequest
from temporalio.client import Client
from temporalio.service import RPCError, RPCStatusCode

from orga.client.errors import OrgaError

_OVERRIDE = FieldMask(paths=["versioning_override"])
_PINNED = VersioningOverride.PinnedOverride(
    behavior=VersioningOverride.PinnedOverrideBehavior.PINNED_OVERRIDE_BEHAVIOR_PINNED,
    version=WorkerDeploymentVersion(deployment_name="orga-held", build_id="held"),
)
_STILL = WorkflowExecutionOptions(versioning_override=VersioningOverride(pinned=_PINNED))
_FREE = WorkflowExecutionOptions()


class StandsStill(OrgaError):
    """The server did not let a run go on that stands still."""

    def __init__(self, workflow_id: str, error: RPCError) -> None:
        super().__init__(
            f"run {workflow_id!r} stands still, since the server answers {error.status.name.lower()}: {error.message}; "
            "rewind it again with the same command: that lets it go on"
        )


def after_reset() -> PostResetOperation:
    """Return what makes a run stand still from its reset on."""
    update = PostResetOperation.UpdateWorkflowOptions(workflow_execution_options=_STILL, update_mask=_OVERRIDE)
    return PostResetOperation(update_workflow_options=update)


async def stands_still(client: Client, workflow_id: str) -> bool:
    """Return whether nobody has let the run go yet: whoever was to do so may have died."""
    described = await client.get_workflow_handle(workflow_id).describe()
    versioning = described.raw_description.workflow_execution_info.versioning_info
    return versioning.versioning_override.pinned.version == _PINNED.version


async def let_go(client: Client, workflow_id: str, run_id: str = "") -> None:
    """Let the run go on, the latest one unless another is named; nothing happens to one that has ended.

    Raises:
        StandsStill: The server did not take it, tried several times.
    """
    try:
        await _update(client, workflow_id, run_id, _FREE)
    except RPCError as error:
        raise StandsStill(workflow_id, error) from error


@asynccontextmanager
async def standstill(client: Client, workflow_id: str) -> AsyncGenerator[None]:
    """Hold a run still, and whatever it is reset to; one that has ended does nothing anyway."""
    try:
        await _update(client, workflow_id, "", _STILL)
        yield
    finally:
        await let_go(client, workflow_id)


async def _update(client: Client, workflow_id: str, run_id: str, options: WorkflowExecutionOptions) -> None:
    request = UpdateWorkflowExecutionOptionsRequest(
        namespace=client.namespace,
        workflow_execution=WorkflowExecution(workflow_id=workflow_id, run_id=run_id),
        workflow_execution_options=options,
        update_mask=_OVERRIDE,
    )
    try:
        await client.workflow_service.update_workflow_execution_options(request, retry=True)
    except RPCError as error:
        if error.status != RPCStatusCode.NOT_FOUND:
            raise
