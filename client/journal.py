"""The journal of a run, read from its history: through continue-as-new, live or closed, with no worker running."""

from collections.abc import AsyncGenerator

from temporalio.api.enums.v1 import ContinueAsNewInitiator
from temporalio.api.history.v1 import WorkflowExecutionStartedEventAttributes
from temporalio.client import Client
from temporalio.service import RPCError, RPCStatusCode

from client.errors import NotAnAgent, OrgaError, RunNotFound
from client.history import happenings
from workflows.decisions.journal import JournalFold
from workflows.types.history import Happening
from workflows.types.journal import JournalEntry
from workflows.types.names import AGENT_WORKFLOW

_OTHER_RUNS = {
    ContinueAsNewInitiator.CONTINUE_AS_NEW_INITIATOR_RETRY,
    ContinueAsNewInitiator.CONTINUE_AS_NEW_INITIATOR_CRON_SCHEDULE,
}
"""What begins a run anew under the same id. The time-skipping server names no initiator at all."""


async def read_journal(client: Client, workflow_id: str, *, follow: bool = False) -> AsyncGenerator[JournalEntry]:
    """Yield the entries of a run, in order.

    Args:
        client: From `connect`.
        workflow_id: The run; all runs of its continue-as-new chain are read.
        follow: Wait for new entries until the run ends.

    Raises:
        RunNotFound: No run has this id.
        NotAnAgent: The id belongs to a workflow of another type.
    """
    fold = JournalFold()
    run_ids = await _chain(client, workflow_id)
    while run_ids:
        async for happening in _read(client, workflow_id, run_ids.pop(0), follow):
            for entry in fold.feed(happening):
                yield entry
            if happening.kind == "continued_as_new" and not run_ids:
                run_ids.append(happening.key)


async def _read(client: Client, workflow_id: str, run_id: str, follow: bool) -> AsyncGenerator[Happening]:
    try:
        async for happening in happenings(client, workflow_id, run_id, follow=follow):
            yield happening
    except RPCError as error:
        raise OrgaError(f"the history of {workflow_id!r} cannot be read: {error.message}; see `orga doctor`") from error


async def _chain(client: Client, workflow_id: str) -> list[str]:
    """Return the ids of the runs of a chain, oldest first; those past the server's retention are gone."""
    run_ids: list[str] = []
    run_id = await _latest(client, workflow_id)
    while run_id:
        try:
            started = await _started(client, workflow_id, run_id)
        except RPCError as error:
            if error.status == RPCStatusCode.NOT_FOUND and run_ids:
                break
            raise
        run_ids.insert(0, run_id)
        run_id = "" if started.initiator in _OTHER_RUNS else started.continued_execution_run_id
    return run_ids


async def _latest(client: Client, workflow_id: str) -> str:
    try:
        description = await client.get_workflow_handle(workflow_id).describe()
    except RPCError as error:
        if error.status == RPCStatusCode.NOT_FOUND:
            raise RunNotFound(workflow_id) from None
        raise OrgaError(f"the history of {workflow_id!r} cannot be read: {error.message}; see `orga doctor`") from error
    if description.workflow_type != AGENT_WORKFLOW:
        raise NotAnAgent(workflow_id, description.workflow_type)
    return description.run_id


async def _started(client: Client, workflow_id: str, run_id: str) -> WorkflowExecutionStartedEventAttributes:
    handle = client.get_workflow_handle(workflow_id, run_id=run_id)
    async for event in handle.fetch_history_events(page_size=1):
        return event.workflow_execution_started_event_attributes
    raise OrgaError(f"the history of {workflow_id!r} is empty")
