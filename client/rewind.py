"""Rewinding a run: it goes on from the end of an earlier iteration, as if nothing had happened since."""

from dataclasses import dataclass

from temporalio.api.enums.v1 import EventType
from temporalio.client import Client
from temporalio.service import RPCError

from client.aftermath import Effect, Sent, effects_after, sent_after
from client.agents import AgentHandle
from client.boundaries import Boundary, boundary_at, boundary_of
from client.chain import RunHistory, histories, run_chain
from client.errors import OrgaError
from client.resets import reset
from workflows.types.result import AgentResult
from workflows.types.rewind import REWOUND, Rewind
from workflows.types.text import clean_text


@dataclass(frozen=True)
class RewindPlan:
    """Where a rewind leads, and what it leaves behind."""

    boundary: Boundary
    interventions: tuple[Sent, ...]
    effects: tuple[Effect, ...]
    is_at_the_answer: bool = False
    """The run ended with the answer of that iteration: only guidance makes it go on."""


async def plan_rewind(client: Client, workflow_id: str, to_iteration: int) -> RewindPlan:
    """Return what a rewind would do, without doing it.

    Raises:
        NoSuchIteration: The run has not finished that iteration.
        RunNotFound: No run has this id.
    """
    runs = await histories(client, await run_chain(client, workflow_id))
    answered = await _answer(client, workflow_id, runs[-1], to_iteration)
    boundary = answered or boundary_of(workflow_id, runs, to_iteration)
    interventions = await sent_after(client, runs, boundary)
    effects = await effects_after(client, runs, boundary)
    return RewindPlan(boundary, interventions, effects, is_at_the_answer=answered is not None)


async def carry_out(
    client: Client, plan: RewindPlan, *, steer: str | None = None, keep_interventions: bool = True
) -> str:
    """Reset the run as planned and return the id of the run that goes on.

    Raises:
        OrgaError: The server refuses, or the run would only end again with its answer.
    """
    boundary, guidance = plan.boundary, clean_text(steer or "").strip()
    if plan.is_at_the_answer and not guidance:
        raise OrgaError(
            f"iteration {boundary.iteration} is the answer of run {boundary.workflow_id!r}: say with --steer what is "
            "wrong with it, or choose an earlier iteration"
        )
    rewind = Rewind(to_iteration=boundary.iteration, boundary_at=boundary.at, steer=guidance or None)
    argument = rewind.model_dump(mode="json")
    try:
        return await reset(client, boundary, REWOUND, argument, keeps_interventions=keep_interventions)
    except RPCError as error:
        raise OrgaError(f"the server cannot rewind {boundary.workflow_id!r}: {error.message}") from error


async def rewind(
    client: Client, workflow_id: str, to_iteration: int, *, steer: str | None = None, keep_interventions: bool = True
) -> AgentHandle:
    """Let a run, live or ended, go on from the end of an earlier iteration.

    What its tools did since is not undone; the same call has the same idempotency key again. Its clock goes on from
    where it stood.

    Args:
        client: From `connect`.
        workflow_id: The run.
        to_iteration: The last iteration that is kept; 0 goes back to before the first model call.
        steer: Guidance for the next reasoning step.
        keep_interventions: Whether signals and updates that came later are delivered again; an abort never is.

    Raises:
        NoSuchIteration: The run has not finished that iteration.
        RunNotFound: No run has this id.
    """
    plan = await plan_rewind(client, workflow_id, to_iteration)
    await carry_out(client, plan, steer=steer, keep_interventions=keep_interventions)
    return AgentHandle(client, workflow_id)


async def _answer(client: Client, workflow_id: str, run: RunHistory, iteration: int) -> Boundary | None:
    """Return the end of the iteration with whose answer the run ended."""
    last = run.events[-1]
    if last.event_type != EventType.EVENT_TYPE_WORKFLOW_EXECUTION_COMPLETED:
        return None
    attributes = last.workflow_execution_completed_event_attributes
    [ended] = await client.data_converter.decode(attributes.result.payloads, [AgentResult])
    if (ended.termination.reason, ended.iterations) != ("completed", iteration):
        return None
    return boundary_at(workflow_id, run, iteration, attributes.workflow_task_completed_event_id)
