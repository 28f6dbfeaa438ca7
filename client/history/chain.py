"""Finds the segments of a run that the server still has, and the events at which its iterations end."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import NamedTuple

from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.enums.v1 import ContinueAsNewInitiator, EventType
from temporalio.api.history.v1 import HistoryEvent, WorkflowExecutionStartedEventAttributes
from temporalio.api.workflowservice.v1 import (
    GetWorkflowExecutionHistoryReverseRequest,
    GetWorkflowExecutionHistoryReverseResponse,
)
from temporalio.client import Client, WorkflowHistory
from temporalio.service import RPCError, RPCStatusCode

from orga.client.errors import NotAnAgent, OrgaError, RunNotFound, ServerLost
from orga.client.history.values import converters_of, require_readable
from orga.client.server.server_errors import is_lost
from orga.workflows.types.names import PROMPT_ACTIVITIES, RUN_WORKFLOWS

_OTHER_RUNS = {
    ContinueAsNewInitiator.CONTINUE_AS_NEW_INITIATOR_RETRY,
    ContinueAsNewInitiator.CONTINUE_AS_NEW_INITIATOR_CRON_SCHEDULE,
}
"""Initiators of an unrelated run with the same id. Any other is accepted: the time-skipping server names none."""


@dataclass(frozen=True)
class RunChain:
    """The segments of a run."""

    workflow_id: str
    run_ids: tuple[str, ...]
    """Oldest first."""
    is_cut: bool = False
    """True if the server no longer has the oldest segments."""
    length: int = 0
    """The number of events in the latest segment when the chain was read. 0 if the caller named the last segment."""


class LatestSegment(NamedTuple):
    run_id: str
    length: int
    """The number of its events."""


async def run_chain(
    client: Client, workflow_id: str, last_run: str | None = None, kinds: Collection[str] = RUN_WORKFLOWS
) -> RunChain:
    """Return the chain that ends with the segment `last_run`. If it is None, the chain ends with the latest segment.

    Raises:
        RunNotFound: The server has no such run or segment.
        NotAnAgent: The workflow is not of one of these kinds.
    """
    run_ids: list[str] = []
    last = LatestSegment(last_run, 0) if last_run else await latest_segment(client, workflow_id, kinds)
    run_id = last.run_id
    while run_id:
        try:
            started = await read_start(client, workflow_id, run_id)
        except RPCError as error:
            if error.status != RPCStatusCode.NOT_FOUND:
                raise history_error(workflow_id, error) from error
            if not run_ids:
                raise RunNotFound(workflow_id, run_id) from None
            return RunChain(workflow_id, tuple(run_ids), is_cut=True, length=last.length)
        if started.workflow_type.name not in kinds:
            raise NotAnAgent(workflow_id, started.workflow_type.name, _specific_kinds(kinds))
        run_ids.insert(0, run_id)
        run_id = previous_segment(started)
    return RunChain(workflow_id, tuple(run_ids), length=last.length)


def previous_segment(started: WorkflowExecutionStartedEventAttributes) -> str:
    """Return the run id of the segment that this one continues, or ""."""
    return "" if started.initiator in _OTHER_RUNS else started.continued_execution_run_id


async def was_reset(client: Client, workflow_id: str, run_ids: Sequence[str]) -> bool:
    """Return whether the run was reset after its chain was read.

    A reset terminates the latest segment, and a new one continues in place of the segment that was reset. A chain that
    is read later contains only the new one.
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
    """The whole history of one segment, with its run id. After a reset, the events themselves do not have that id."""

    run_id: str
    history: WorkflowHistory

    @property
    def events(self) -> Sequence[HistoryEvent]:
        """The events, numbered from 1 without gaps."""
        return self.history.events


async def histories(client: Client, chain: RunChain) -> list[RunHistory]:
    """Return the histories of a chain, oldest first. Raise UnreadableRun if the client lacks their codec."""
    handles = [(run_id, client.get_workflow_handle(chain.workflow_id, run_id=run_id)) for run_id in chain.run_ids]
    try:
        runs = [RunHistory(run_id, await handle.fetch_history()) for run_id, handle in handles]
    except RPCError as error:
        raise history_error(chain.workflow_id, error) from error
    for run in runs:
        await require_readable(converters_of(client, run.history), run.history)
    return runs


async def page_from_end(
    client: Client, workflow_id: str, run_id: str = "", *, size: int, token: bytes = b""
) -> GetWorkflowExecutionHistoryReverseResponse:
    """Return events of a segment, the newest first. Without `run_id`, return those of the latest segment."""
    request = GetWorkflowExecutionHistoryReverseRequest(
        namespace=client.namespace,
        execution=WorkflowExecution(workflow_id=workflow_id, run_id=run_id),
        maximum_page_size=size,
        next_page_token=token,
    )
    return await client.workflow_service.get_workflow_execution_history_reverse(request, retry=True)


def history_error(workflow_id: str, error: RPCError) -> OrgaError:
    """Return the error to raise if the server does not return a history."""
    problem = f"the history of {workflow_id!r} cannot be read: {error.message}"
    return ServerLost(problem) if is_lost(error) else OrgaError(f"{problem}; see `orga doctor`")


def _specific_kinds(kinds: Collection[str]) -> Collection[str]:
    """Return the kinds that an error names: none if every kind of run was accepted."""
    return () if set(kinds) == set(RUN_WORKFLOWS) else kinds


async def latest_segment(client: Client, workflow_id: str, kinds: Collection[str]) -> LatestSegment:
    """Return the latest segment of a run. Raise RunNotFound or NotAnAgent."""
    try:
        description = await client.get_workflow_handle(workflow_id).describe()
    except RPCError as error:
        if error.status == RPCStatusCode.NOT_FOUND:
            raise RunNotFound(workflow_id) from None
        raise history_error(workflow_id, error) from error
    if description.workflow_type not in kinds:
        raise NotAnAgent(workflow_id, description.workflow_type, _specific_kinds(kinds))
    return LatestSegment(description.run_id, description.history_length)


async def read_start(client: Client, workflow_id: str, run_id: str) -> WorkflowExecutionStartedEventAttributes:
    """Return the attributes with which a segment was started, such as its input."""
    handle = client.get_workflow_handle(workflow_id, run_id=run_id)
    async for event in handle.fetch_history_events(page_size=1):
        return event.workflow_execution_started_event_attributes
    raise OrgaError(f"the history of {workflow_id!r} is empty")


@dataclass(frozen=True)
class Boundary:
    """The end of an iteration. Iteration 0 ends when the run is prepared."""

    workflow_id: str
    run_id: str
    iteration: int
    event_id: int
    """The completion of the workflow task after which the iteration was over."""
    at: datetime
    """The workflow time in that task."""


class NoSuchIteration(OrgaError):
    """The run has not finished that iteration."""

    def __init__(self, workflow_id: str, iteration: int, begun: int, first: int = 0) -> None:
        """Describe the error. `begun` is the latest iteration, which has no end. `first` is the first that has one."""
        ends = f"there are {first} to {begun - 1}" if begun else "no model call was made yet"
        super().__init__(f"run {workflow_id!r} has no end of iteration {iteration} to go on from; {ends}")


def boundary_of(workflow_id: str, runs: Sequence[RunHistory], iteration: int) -> Boundary:
    """Return the end of an iteration. Raise NoSuchIteration if no model call follows it."""
    called: list[int] = []  # the iterations with a model call
    for run in runs:
        for event in run.events:
            if number := model_call_iteration(event):
                called.append(number)
            if number == iteration + 1:
                task = event.activity_task_scheduled_event_attributes.workflow_task_completed_event_id
                return boundary_at(workflow_id, run, iteration, task)
    if not called:
        raise NoSuchIteration(workflow_id, iteration, begun=0)
    raise NoSuchIteration(workflow_id, iteration, begun=max(called), first=called[0] - 1)


def boundary_at(workflow_id: str, run: RunHistory, iteration: int, event_id: int) -> Boundary:
    """Return the boundary at a completed workflow task."""
    completed = run.events[event_id - 1].workflow_task_completed_event_attributes
    started = run.events[completed.started_event_id - 1]
    return Boundary(workflow_id, run.run_id, iteration, event_id, started.event_time.ToDatetime(tzinfo=UTC))


def model_call_iteration(event: HistoryEvent) -> int:
    """Return the iteration whose model call this event schedules, or 0."""
    if event.event_type != EventType.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED:
        return 0
    attributes = event.activity_task_scheduled_event_attributes
    is_model_call = attributes.activity_type.name in PROMPT_ACTIVITIES and attributes.activity_id.isdigit()
    return int(attributes.activity_id) if is_model_call else 0
