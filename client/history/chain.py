"""The runs of a chain: one run of an agent through all its continue-as-new runs, as far as the server keeps them."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from temporalio.api.enums.v1 import ContinueAsNewInitiator
from temporalio.api.history.v1 import HistoryEvent, WorkflowExecutionStartedEventAttributes
from temporalio.client import Client, WorkflowHistory
from temporalio.service import RPCError, RPCStatusCode

from orga.client.errors import NotAnAgent, OrgaError, RunNotFound, ServerLost
from orga.client.server.server_errors import is_lost
from orga.workflows.types.names import RUN_WORKFLOWS

_OTHER_RUNS = {
    ContinueAsNewInitiator.CONTINUE_AS_NEW_INITIATOR_RETRY,
    ContinueAsNewInitiator.CONTINUE_AS_NEW_INITIATOR_CRON_SCHEDULE,
}
"""What begins a run anew under the same id. The time-skipping server names no initiator at all."""


@dataclass(frozen=True)
class RunChain:
    """Ids of the runs, oldest first."""

    workflow_id: str
    run_ids: tuple[str, ...]
    is_cut: bool = False
    """Whether the oldest runs are past the server's retention."""
    length: int = 0
    """Events that the latest run had when the chain was read; 0 where another run was named as the last."""


async def run_chain(
    client: Client, workflow_id: str, last_run: str | None = None, kinds: Collection[str] = RUN_WORKFLOWS
) -> RunChain:
    """Return the chain that ends with the latest run of this id, or with `last_run`; a run of these kinds.

    Raises:
        RunNotFound: No run has this id.
        NotAnAgent: The id belongs to a workflow of another type.
    """
    run_ids: list[str] = []
    run_id, length = (last_run, 0) if last_run else await _latest_run(client, workflow_id, kinds)
    while run_id:
        try:
            started = await read_start(client, workflow_id, run_id)
        except RPCError as error:
            if error.status != RPCStatusCode.NOT_FOUND:
                raise history_error(workflow_id, error) from error
            if not run_ids:
                raise RunNotFound(workflow_id, run_id) from None
            return RunChain(workflow_id, tuple(run_ids), is_cut=True, length=length)
        if started.workflow_type.name not in kinds:
            raise NotAnAgent(workflow_id, started.workflow_type.name, _specific_kinds(kinds))
        run_ids.insert(0, run_id)
        run_id = "" if started.initiator in _OTHER_RUNS else started.continued_execution_run_id
    return RunChain(workflow_id, tuple(run_ids), length=length)


async def was_reset(client: Client, workflow_id: str, run_ids: Sequence[str]) -> bool:
    """Return whether a run of the chain was reset: another goes on from there, and the latest one was terminated.

    No chain has a run that was reset before the chain was read: its place has the run that goes on.
    """
    for run_id in reversed(run_ids):
        try:
            described = await client.get_workflow_handle(workflow_id, run_id=run_id).describe()
        except RPCError as error:
            if error.status == RPCStatusCode.NOT_FOUND:
                continue
            raise history_error(workflow_id, error) from error
        if described.raw_description.workflow_extended_info.reset_run_id:
            return True
    return False


@dataclass(frozen=True)
class RunHistory:
    """The whole history of one run, whose own id is not in it once it was reset."""

    run_id: str
    history: WorkflowHistory

    @property
    def events(self) -> Sequence[HistoryEvent]:
        """The events, numbered from 1 without a gap."""
        return self.history.events


async def histories(client: Client, chain: RunChain) -> list[RunHistory]:
    """Return the histories of a chain, oldest first."""
    handles = [(run_id, client.get_workflow_handle(chain.workflow_id, run_id=run_id)) for run_id in chain.run_ids]
    try:
        return [RunHistory(run_id, await handle.fetch_history()) for run_id, handle in handles]
    except RPCError as error:
        raise history_error(chain.workflow_id, error) from error


def history_error(workflow_id: str, error: RPCError) -> OrgaError:
    """Return what a user is told when the server does not hand a history out."""
    told = f"the history of {workflow_id!r} cannot be read: {error.message}"
    return ServerLost(told) if is_lost(error) else OrgaError(f"{told}; see `orga doctor`")


def _specific_kinds(kinds: Collection[str]) -> Collection[str]:
    """Return the kinds that are meant where these are not all runs of ours."""
    return () if set(kinds) == set(RUN_WORKFLOWS) else kinds


async def _latest_run(client: Client, workflow_id: str, kinds: Collection[str]) -> tuple[str, int]:
    """Return the id of the latest run, and how many events it has."""
    try:
        description = await client.get_workflow_handle(workflow_id).describe()
    except RPCError as error:
        if error.status == RPCStatusCode.NOT_FOUND:
            raise RunNotFound(workflow_id) from None
        raise history_error(workflow_id, error) from error
    if description.workflow_type not in kinds:
        raise NotAnAgent(workflow_id, description.workflow_type, _specific_kinds(kinds))
    return description.run_id, description.history_length


async def read_start(client: Client, workflow_id: str, run_id: str) -> WorkflowExecutionStartedEventAttributes:
    """Return what a run was started with."""
    handle = client.get_workflow_handle(workflow_id, run_id=run_id)
    async for event in handle.fetch_history_events(page_size=1):
        return event.workflow_execution_started_event_attributes
    raise OrgaError(f"the history of {workflow_id!r} is empty")
