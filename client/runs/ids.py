"""Ids of runs: one stands for one run, unless somebody says that it is meant again."""

from temporalio.client import Client, WorkflowExecutionStatus
from temporalio.common import WorkflowIDReusePolicy
from temporalio.service import RPCError

from orga.client.errors import OrgaError
from orga.workflows.types.names import TERMINATION

MAX_ID_BYTES = 1_000
"""The server takes no longer one, and the error that it answers with does not come through."""


def reuse_policy(*, again: bool = False) -> WorkflowIDReusePolicy:
    """Return whether the id of a run that has ended may stand for a new one, too."""
    return WorkflowIDReusePolicy.ALLOW_DUPLICATE if again else WorkflowIDReusePolicy.REJECT_DUPLICATE


async def id_taken_error(client: Client, workflow_id: str, again: str = "--again starts another under it") -> OrgaError:
    """Return what somebody is told whose id stands for another run: whether that is live, or when and how it ended."""
    try:
        found = await client.get_workflow_handle(workflow_id).describe()
    except RPCError:  # it is gone by now
        return OrgaError(f"there is a run {workflow_id!r} already; choose another id")
    if found.status == WorkflowExecutionStatus.RUNNING:
        return OrgaError(f"run {workflow_id!r} is live already; attach to it, or choose another id")
    state = found.status.name.lower() if found.status else "ended"
    how = found.typed_search_attributes.get(TERMINATION) or state
    when = f" at {found.close_time.astimezone():%Y-%m-%d %H:%M:%S}" if found.close_time else ""
    return OrgaError(
        f"run {workflow_id!r} has ended{when} ({how}), and its id stands for it; choose another one, or {again}"
    )
