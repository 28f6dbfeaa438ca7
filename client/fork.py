"""Forking a run: another one with the same past, up to the end of an iteration."""

from collections.abc import Collection, Mapping
from datetime import UTC, datetime
from typing import Any

import uuid_utils
from temporalio.api.enums.v1 import EventType
from temporalio.client import Client
from temporalio.common import WorkflowIDConflictPolicy, WorkflowIDReusePolicy
from temporalio.exceptions import WorkflowAlreadyStartedError
from temporalio.service import RPCError

from client.agents import SUMMARY_CHARS, AgentHandle
from client.boundaries import NoSuchIteration, boundary_of
from client.chain import RunHistory, histories, run_chain
from client.errors import OrgaError
from client.replayed_state import replayed_state, until_task
from workflows.decisions.forks import fork_of
from workflows.decisions.roll_over import MAX_CARRIED_BYTES
from workflows.decisions.summaries import one_line
from workflows.types.names import AGENT_WORKFLOW
from workflows.types.state import AgentState, ForkedFrom


async def fork(
    client: Client,
    workflow_id: str,
    at_iteration: int,
    *,
    changes: Mapping[str, Any] | None = None,
    task: str | None = None,
    requeue: Collection[str] = (),
    new_id: str | None = None,
) -> AgentHandle:
    """Start a run that shares another's past up to the end of an iteration; the other one is left alone.

    The fork has the model, instructions and settings of its past and the tools that its agent has now. Its effects are
    its own: no idempotency key is one of the other run, but for the dead letters that it sends again.

    Args:
        client: From `connect`.
        workflow_id: The run whose past is shared, live or ended.
        at_iteration: The last iteration of that past; 0 shares no more than what was prepared.
        changes: Keys of the input that are other in the fork (`model`, `instructions`, `tools`, `agent`); those of
            `config` one by one.
        task: What the fork shall do, asked behind the conversation so far.
        requeue: Dead letters of that past that the fork sends again first.
        new_id: `agent-<uuid7>` unless given.

    Raises:
        InvalidInput: Before anything is started, naming each bad key.
        NoSuchIteration: The run has not finished that iteration.
        RunNotFound: No run has this id.
    """
    runs = await histories(client, await run_chain(client, workflow_id))
    run, state, at = await _past(client, workflow_id, runs, at_iteration)
    if state.stop is not None and state.stop[0] == "completed" and task is None and not requeue:
        raise OrgaError(f"iteration {at_iteration} is the answer of run {workflow_id!r}: give the fork a --task")
    source = ForkedFrom(workflow_id=workflow_id, run_id=run.run_id, iteration=at_iteration)
    forked = fork_of(state, source, changes=changes or {}, task=task, ended_at=at, requeue=requeue)
    if len(forked.model_dump_json(exclude_unset=True).encode()) > MAX_CARRIED_BYTES:
        raise OrgaError(f"the past of {workflow_id!r} is too large to share; fork it at an earlier iteration")
    described = await AgentHandle(client, workflow_id).describe()
    return await _started(client, forked, new_id or f"agent-{uuid_utils.uuid7()}", described.task_queue)


async def _past(
    client: Client, workflow_id: str, runs: list[RunHistory], iteration: int
) -> tuple[RunHistory, AgentState, datetime]:
    """Return the run that had finished the iteration, its state then, and when that was."""
    try:
        boundary = boundary_of(workflow_id, runs, iteration)
    except NoSuchIteration:
        state = await _final_state(client, runs[-1])
        if state is None or state.iteration != iteration:
            raise
        return runs[-1], state, runs[-1].events[-1].event_time.ToDatetime(tzinfo=UTC)
    run = next(run for run in runs if run.run_id == boundary.run_id)
    state = await replayed_state(until_task(run.history, boundary.event_id), client.data_converter)
    return run, state, boundary.at


async def _final_state(client: Client, run: RunHistory) -> AgentState | None:
    """Return the state that a run ended with; one that was terminated may have ended in the middle of anything."""
    if run.events[-1].event_type != EventType.EVENT_TYPE_WORKFLOW_EXECUTION_COMPLETED:
        return None
    return await replayed_state(run.history, client.data_converter)


async def _started(client: Client, state: AgentState, workflow_id: str, task_queue: str) -> AgentHandle:
    given = state.input.model_dump(mode="json", exclude_unset=True)
    try:
        await client.start_workflow(
            AGENT_WORKFLOW,
            args=[given, state.model_dump(mode="json", exclude_unset=True)],
            id=workflow_id,
            task_queue=task_queue,
            id_reuse_policy=WorkflowIDReusePolicy.ALLOW_DUPLICATE,
            id_conflict_policy=WorkflowIDConflictPolicy.FAIL,
            static_summary=one_line(state.input.task, SUMMARY_CHARS),
        )
    except WorkflowAlreadyStartedError:
        raise OrgaError(f"run {workflow_id!r} is live already; choose another id") from None
    except RPCError as error:
        raise OrgaError(f"the server refuses {workflow_id!r}: {error.message}") from error
    return AgentHandle(client, workflow_id)
