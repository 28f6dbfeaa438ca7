"""Before the first iteration: what the run works with, asked once of the worker's configuration."""

import asyncio
from datetime import timedelta

from temporalio import workflow
from temporalio.common import RetryPolicy
from temporalio.exceptions import ApplicationError

from workflows.decisions.grounding import unfounded
from workflows.phases.home import started_for
from workflows.phases.interrupt import result_of
from workflows.phases.run import Run
from workflows.types.context import PrepareRequest, Setup
from workflows.types.input import AgentInput

ATTEMPT_S = 10.0
"""It reads configuration; a worker that dies over it costs no more than one that dies over a model call."""


async def prepare_setup(run: Run) -> Setup:
    """Return the setup.

    Raises:
        Interrupted: The run was interrupted first.
        ActivityError: `InvalidInput` for an unknown agent, tool or model, not retried; else nobody could tell in time.
        ApplicationError: `InvalidInput` for a fact that a decision needs and the input does not give.
    """
    run.go_on()
    setup = await result_of(asyncio.create_task(run.event(_prepare(run.state.input))), run.is_interrupted)
    run.go_on()
    return _founded(setup, run.state.input)


def _founded(setup: Setup, run_input: AgentInput) -> Setup:
    if lacking := unfounded(setup.decisions, run_input):
        raise ApplicationError("; ".join(lacking), type="InvalidInput", non_retryable=True)
    return setup


async def _prepare(run_input: AgentInput) -> Setup:
    request = PrepareRequest(
        agent=run_input.agent,
        model=run_input.model,
        instructions=run_input.instructions,
        tools=run_input.tools,
        config=run_input.config.model_dump(mode="json", exclude_unset=True),
    )
    lineage = run_input.lineage
    if lineage.chain:
        request = request.model_copy(update={"ceiling": lineage.ceiling, "depth": lineage.depth})
    if (place := started_for()) is not None:
        request = request.model_copy(update={"workplace": place})
    if run_input.output_schema is not None:
        request = request.model_copy(update={"output_schema": run_input.output_schema})
    return await workflow.execute_activity(
        "prepare",
        request,
        result_type=Setup,
        start_to_close_timeout=timedelta(seconds=ATTEMPT_S),
        schedule_to_close_timeout=timedelta(seconds=run_input.config.timeout_s),
        retry_policy=RetryPolicy(maximum_interval=timedelta(seconds=10)),
        summary=f"agent {run_input.agent}",
    )
