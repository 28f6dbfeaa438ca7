"""Rewinding a run: it goes on from the end of an earlier iteration, as if nothing had happened since."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from temporalio.api.enums.v1 import EventType
from temporalio.client import Client
from temporalio.service import RPCError

from orga.client.errors import OrgaError
from orga.client.history.boundaries import Boundary, NoSuchIteration, boundary_at, boundary_of
from orga.client.history.chain import RunHistory, histories, run_chain
from orga.client.history.values import values_of
from orga.client.past import delegates
from orga.client.past.aftermath import Effect, Sent, effects_after, events_after, sent_after
from orga.client.past.delegates import Delegate
from orga.client.past.resets import finished, reset, reset_from
from orga.client.past.standstill import stands_still, standstill
from orga.client.runs.agents import AgentHandle
from orga.client.runs.exchange import check_length
from orga.client.runs.kinds import kind_of
from orga.client.server.lacking import reason_of
from orga.workflows.types.control import MAX_LINE_CHARS, MAX_LINES, REWOUND, Rewind
from orga.workflows.types.goals.result import GoalResult
from orga.workflows.types.loop_tools import loop_tool
from orga.workflows.types.names import SET_BACK
from orga.workflows.types.text import clean_text, one_line


@dataclass(frozen=True)
class RewindPlan:
    """Where a rewind leads, and what it leaves behind."""

    boundary: Boundary
    interventions: tuple[Sent, ...]
    effects: tuple[Effect, ...]
    delegates: tuple[Delegate, ...] = ()
    """Delegated runs at work for what is left behind: they are aborted, and have ended before the run goes on."""
    is_at_the_answer: bool = False
    """The run ended with the answer of that iteration: only guidance makes it go on."""

    @property
    def left_behind(self) -> tuple[str, ...]:
        """The calls that nothing takes back, a line each: tool, arguments, outcome."""
        lines = [
            f"{each.text if loop_tool(each.tool).is_run else each.tool} {each.arguments}".rstrip() + f": {each.outcome}"
            for each in self.effects
            if each.is_irreversible
        ]
        return tuple(one_line(line, MAX_LINE_CHARS) for line in lines)


async def plan_rewind(client: Client, workflow_id: str, to_iteration: int) -> RewindPlan:
    """Return what a rewind would do, without doing it.

    Raises:
        NoSuchIteration: The run has not finished that iteration.
        RunNotFound: No run has this id.
    """
    runs, boundary, is_at_the_answer = await _found(client, workflow_id, to_iteration)
    interventions = await sent_after(client, runs, boundary)
    effects = await effects_after(client, runs, boundary)
    left = await delegates.at_work(client, events_after(runs, boundary))
    return RewindPlan(boundary, interventions, effects, left, is_at_the_answer)


async def carry_out(
    client: Client, plan: RewindPlan, *, steer: str | None = None, keep_interventions: bool = True
) -> str:
    """Reset the run as planned and return the id of the run that goes on.

    Raises:
        OrgaError: The server refuses, the run would only end again with its answer, or a delegate does not end;
            nothing was rewound then.
    """
    boundary, guidance = plan.boundary, clean_text(steer or "").strip()
    check_length(guidance)
    if plan.is_at_the_answer and not guidance:
        raise OrgaError(
            f"iteration {boundary.iteration} is the answer of run {boundary.workflow_id!r}: say with --steer what is "
            "wrong with it, or choose an earlier iteration"
        )
    rewind = Rewind(
        to_iteration=boundary.iteration,
        boundary_at=boundary.at,
        steer=guidance or None,
        left=plan.left_behind[-MAX_LINES:],
    )
    argument = rewind.model_dump(mode="json", exclude_defaults=True)
    try:
        async with _alone(client, boundary):
            if keep_interventions and (run_id := await finished(client, boundary, REWOUND, argument)):
                return run_id
            return await reset(client, boundary, REWOUND, argument, keeps_interventions=keep_interventions)
    except RPCError as error:
        raise OrgaError(f"the server cannot rewind {boundary.workflow_id!r}: {reason_of(error)}") from error


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


async def _found(
    client: Client, workflow_id: str, iteration: int, last_run: str | None = None
) -> tuple[list[RunHistory], Boundary, bool]:
    """Return the histories that hold the end of an iteration, that end, and whether it is the answer.

    A run whose rewind was cut short stands before that end; the run that it was reset from has it.
    """
    runs = await histories(client, await run_chain(client, workflow_id, last_run, SET_BACK))
    if answered := await _answer(client, workflow_id, runs[-1], iteration):
        return runs, answered, True
    try:
        return runs, boundary_of(workflow_id, runs, iteration), False
    except NoSuchIteration:
        if not (before := reset_from(runs[-1].events)):
            raise
    return await _found(client, workflow_id, iteration, before)


@asynccontextmanager
async def _alone(client: Client, boundary: Boundary) -> AsyncGenerator[None]:
    """Let the delegates of what is left behind end first; the run stands still meanwhile and starts no others."""
    if not await _at_work(client, boundary) and not await stands_still(client, boundary.workflow_id):
        yield
        return
    async with standstill(client, boundary.workflow_id):
        while left := await _at_work(client, boundary):
            await delegates.ended(client, left, f"the run that delegated is rewound to iteration {boundary.iteration}")
        yield


async def _at_work(client: Client, boundary: Boundary) -> tuple[Delegate, ...]:
    runs, _, _ = await _found(client, boundary.workflow_id, boundary.iteration)
    return await delegates.at_work(client, events_after(runs, boundary))


async def _answer(client: Client, workflow_id: str, run: RunHistory, iteration: int) -> Boundary | None:
    """Return the end of the iteration with whose answer the run ended; an answer of a goal may be delivered by now."""
    last = run.events[-1]
    if last.event_type != EventType.EVENT_TYPE_WORKFLOW_EXECUTION_COMPLETED:
        return None
    attributes = last.workflow_execution_completed_event_attributes
    [answer] = await values_of(client, run.history).own.decode(attributes.result.payloads)
    ended = kind_of(answer).result.model_validate(answer)
    if isinstance(ended, GoalResult) or (ended.termination.reason, ended.iterations) != ("completed", iteration):
        return None
    return boundary_at(workflow_id, run, iteration, attributes.workflow_task_completed_event_id)
