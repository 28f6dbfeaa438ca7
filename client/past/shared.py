"""Reads the past that a fork shares from the history of the other run.

The worker does this because it trusts no state that a starter sends, and the client does it to report problems early.
"""

from datetime import UTC, datetime

from temporalio.api.enums.v1 import EventType
from temporalio.client import Client, WorkflowHistory
from temporalio.service import RPCError, RPCStatusCode

from orga.client.errors import OrgaError
from orga.client.history.boundaries import NoSuchIteration, boundary_of
from orga.client.history.chain import RunHistory, histories, run_chain
from orga.client.history.events import folded_context
from orga.client.history.values import values_of
from orga.client.past.replayed_state import history_until_task, replayed_state
from orga.workflows.decisions.carried_parts import MAX_CARRIED_BYTES
from orga.workflows.decisions.fork import fork_state
from orga.workflows.decisions.goals.begin import goal_fork_state
from orga.workflows.types.context import DigestMismatch, messages_digest
from orga.workflows.types.goals.pursuit import GoalState
from orga.workflows.types.names import AGENT_WORKFLOWS, GOAL_WORKFLOW
from orga.workflows.types.past import ForkedFrom, ForkInput, GoalForkInput
from orga.workflows.types.record import InvalidInput
from orga.workflows.types.state import AgentState

_NO_SUCH_RUN = (RPCStatusCode.NOT_FOUND, RPCStatusCode.INVALID_ARGUMENT)
"""Errors for which a retry is useless. A server refuses an id that no run can have as an invalid argument."""


class RunPasts:
    """The `Pasts` of activities, read through the worker's client, for runs in its namespace."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def shared(self, wish: ForkInput | GoalForkInput) -> AgentState:
        """Return the past. If the server is lost for a moment, the error lets Temporal retry."""
        try:
            return await shared_past(self._client, wish)
        except OrgaError as error:
            cause = error.__cause__
            if isinstance(cause, RPCError) and cause.status not in _NO_SUCH_RUN:
                raise
            raise InvalidInput(f"fork: {error}") from None


async def shared_past(client: Client, wish: ForkInput | GoalForkInput) -> AgentState:
    """Return the past that a fork shares.

    Raises:
        InvalidInput: A change for the fork does not fit. The text names each bad key.
        NoSuchIteration: The run has not finished that iteration.
        RunNotFound: The server does not have the run, or no longer.
        OrgaError: The past is too large, ends with the answer, or contradicts its own history.
    """
    fork = wish.fork
    kinds = (GOAL_WORKFLOW,) if isinstance(wish, GoalForkInput) else AGENT_WORKFLOWS
    chain = await run_chain(client, fork.workflow_id, fork.run_id or None, kinds)
    runs = await histories(client, chain)
    run, history, at = await _iteration_end(client, fork.workflow_id, runs, fork.iteration)
    state = await replayed_state(history, values_of(client, history))
    if state.iteration != fork.iteration:
        first = state.forked_from.iteration if state.forked_from else 0
        raise NoSuchIteration(fork.workflow_id, fork.iteration, state.iteration + 1, first)
    await _check_messages(client, history, state)
    if state.stop is not None and state.stop[0] == "completed" and wish.task is None and not fork.requeue:
        raise OrgaError(f"iteration {fork.iteration} is the answer of run {fork.workflow_id!r}: give the fork a --task")
    source = ForkedFrom(workflow_id=fork.workflow_id, run_id=run.run_id, iteration=fork.iteration)
    past = _build_past(state, source, wish, at)
    if len(past.model_dump_json().encode()) > MAX_CARRIED_BYTES:
        raise OrgaError(f"the past of {fork.workflow_id!r} is too large to share; fork it at an earlier iteration")
    return past


def _build_past(state: AgentState, source: ForkedFrom, wish: ForkInput | GoalForkInput, at: datetime) -> AgentState:
    if isinstance(wish, ForkInput):
        return fork_state(state, source, wish, at)
    if not isinstance(state, GoalState):
        raise OrgaError(f"run {source.workflow_id!r} is no goal")
    return goal_fork_state(state, source, wish, at)


async def _iteration_end(
    client: Client, workflow_id: str, runs: list[RunHistory], iteration: int
) -> tuple[RunHistory, WorkflowHistory, datetime]:
    """Return the run that finished the iteration, its history until then, and the time.

    A completed run may also have ended with the iteration. A terminated run may have ended in the middle of one.
    """
    try:
        boundary = boundary_of(workflow_id, runs, iteration)
    except NoSuchIteration:
        last = runs[-1].events[-1]
        if last.event_type != EventType.EVENT_TYPE_WORKFLOW_EXECUTION_COMPLETED:
            raise
        return runs[-1], runs[-1].history, last.event_time.ToDatetime(tzinfo=UTC)
    run = next(run for run in runs if run.run_id == boundary.run_id)
    return run, history_until_task(run.history, boundary.event_id), boundary.at


async def _check_messages(client: Client, history: WorkflowHistory, state: AgentState) -> None:
    """Compare the replayed messages with the digests that the history recorded.

    Raises:
        OrgaError: They differ.
    """
    try:
        recorded = await folded_context(client, history, state.iteration)
    except DigestMismatch as error:
        raise OrgaError(f"the history of {history.workflow_id!r} is inconsistent: {error}") from None
    if state.conversation.forget:  # the messages no longer include what was recalled for that call
        recorded = tuple(message for message in recorded if not message.knowledge)
    if state.conversation.sent and messages_digest(recorded) != state.conversation.digest:
        raise OrgaError(f"the messages of {history.workflow_id!r} are not those that its history recorded")
