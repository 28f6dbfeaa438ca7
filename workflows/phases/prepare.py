"""Before the first iteration: what the run works with, asked once of its worker; of a fork the past that it shares."""

import asyncio
from datetime import timedelta
from typing import Any

from pydantic import ValidationError
from temporalio import workflow
from temporalio.common import RetryPolicy
from temporalio.exceptions import ApplicationError

from orga.workflows.decisions.begin import size_problem
from orga.workflows.decisions.decision import unfounded
from orga.workflows.decisions.fork import shared
from orga.workflows.phases.control.run import result_of
from orga.workflows.phases.run import Run
from orga.workflows.phases.started_for import started_for
from orga.workflows.types.names import READ_PAST
from orga.workflows.types.past import Forking
from orga.workflows.types.record import InvalidInput
from orga.workflows.types.setup import PrepareRequest, Setup
from orga.workflows.types.state import AgentState

PAST_ATTEMPT_S = 120.0
"""It replays a history of any length."""

HEARTBEAT_TIMEOUT_S = 10.0


async def take_past(run: Run) -> None:
    """Share the past of another run where this one is to.

    Raises:
        Interrupted: The run was interrupted first.
        ActivityError: `InvalidInput` where there is no such past, not retried; else nobody could read it in time.
        ApplicationError: `InvalidInput` for a past that is none.
    """
    wish = run.state.fork
    if wish is None:
        return
    within_s = run.state.input.config.timeout_s
    past = await result_of(asyncio.create_task(run.event(_read(wish, within_s))), run.is_interrupted)
    run.raise_if_interrupted()
    try:
        run.change(shared, type(run.state).model_validate(past))
    except (ValidationError, InvalidInput, OverflowError) as error:
        raise ApplicationError(f"fork: {error}", type="InvalidInput", non_retryable=True) from None


async def _read(wish: Forking, within_s: float) -> Any:
    return await workflow.execute_activity(
        READ_PAST,
        wish,
        start_to_close_timeout=timedelta(seconds=PAST_ATTEMPT_S),
        schedule_to_close_timeout=timedelta(seconds=within_s),
        heartbeat_timeout=timedelta(seconds=HEARTBEAT_TIMEOUT_S),
        retry_policy=RetryPolicy(maximum_interval=timedelta(seconds=10)),
        summary=f"iteration {wish.fork.iteration} of {wish.fork.workflow_id}",
    )


ATTEMPT_S = 10.0
"""It reads configuration; a worker that dies over it costs no more than one that dies over a model call."""


async def prepare_setup(run: Run) -> Setup:
    """Return the setup.

    Raises:
        Interrupted: The run was interrupted first.
        ActivityError: `InvalidInput` for an unknown agent, tool or model, not retried; else nobody could tell in time.
        ApplicationError: `InvalidInput` for a fact that a decision needs and the input does not give, and for more than
            any run can carry on.
    """
    run.raise_if_interrupted()
    setup = await result_of(asyncio.create_task(run.event(_prepare(run))), run.is_interrupted)
    run.raise_if_interrupted()
    return _founded(setup, run.state)


def _founded(setup: Setup, state: AgentState) -> Setup:
    lacking = unfounded(setup.decisions, state.input) if setup.decisions else []
    if problem := "; ".join(lacking) or size_problem(state, setup):
        raise ApplicationError(problem, type="InvalidInput", non_retryable=True)
    return setup


async def _prepare(run: Run) -> Setup:
    run_input = run.state.input
    request = PrepareRequest(
        agent=run_input.agent,
        model=run_input.model,
        instructions=run_input.instructions,
        tools=run_input.tools,
        config=run_input.config.model_dump(mode="json", exclude_unset=True),
    )
    lineage = run_input.lineage
    if lineage.chain:
        request = request.with_ceiling(lineage.ceiling, lineage.depth)
    if (place := started_for()) is not None:
        request = request.with_workplace(place)
    if run_input.output_schema is not None:
        request = request.with_output_schema(run_input.output_schema)
    request = run.wants(request)
    return await workflow.execute_activity(
        "prepare",
        request,
        result_type=Setup,
        start_to_close_timeout=timedelta(seconds=ATTEMPT_S),
        schedule_to_close_timeout=timedelta(seconds=run_input.config.timeout_s),
        retry_policy=RetryPolicy(maximum_interval=timedelta(seconds=10)),
        summary=f"agent {run_input.agent}",
    )
