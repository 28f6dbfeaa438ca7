"""Ids of runs. An id belongs to one run, unless somebody explicitly uses it again."""

from temporalio.client import Client, WorkflowExecutionStatus
from temporalio.common import WorkflowIDReusePolicy
from temporalio.service import RPCError

from orga.client.errors import OrgaError
from orga.workflows.types.names import TERMINATION

MAX_ID_BYTES = 1_000
"""The server refuses a longer one, and its error does not reach the client."""


def reuse_policy(*, again: bool = False) -> WorkflowIDReusePolicy:
    """Return the policy for the id of an ended run: a new run may use it only with `again`."""
    return WorkflowIDReusePolicy.ALLOW_DUPLICATE if again else WorkflowIDReusePolicy.REJECT_DUPLICATE


async def id_taken_error(client: Client, workflow_id: str, again: str = "--again starts another under it") -> OrgaError:
    """Return the error for an id that another run has. It says if that run is live, or when and how it ended."""
    try:
        found = await client.get_workflow_handle(workflow_id).describe()
    except RPCError:  # the run has gone meanwhile
        return OrgaError(f"there is a run {workflow_id!r} already; choose another id")
    if found.status == WorkflowExecutionStatus.RUNNING:
        return OrgaError(f"run {workflow_id!r} is live already; attach to it, or choose another id")
    state = found.status.name.lower() if found.status else "ended"
    how = found.typed_search_attributes.get(TERMINATION) or state
    when = f" at {found.close_time.astimezone():%Y-%m-%d %H:%M:%S}" if found.close_time else ""
    return OrgaError(f"run {workflow_id!r} has ended{when} ({how}), and keeps its id; choose another one, or {again}")
