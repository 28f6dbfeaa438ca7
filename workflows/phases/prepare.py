"""Before the first iteration: what the run works with, asked once of the worker's configuration."""

import asyncio
from datetime import timedelta

from temporalio import workflow
from temporalio.common import RetryPolicy

from workflows.phases.interrupt import Interrupted, settle
from workflows.types.context import PrepareRequest, Setup
from workflows.types.input import AgentInput

ATTEMPT_S = 10.0
"""It reads configuration; a worker that dies over it costs no more than one that dies over a model call."""


async def setup_of(run_input: AgentInput, interrupted: Interrupted) -> Setup | None:
    """Return the setup, or None when the run was interrupted first.

    Raises:
        ActivityError: `InvalidInput` for an unknown agent, tool or model, not retried; else nobody could tell in time.
    """
    task = asyncio.create_task(_prepare(run_input))
    await settle([task], interrupted)
    return task.result() if task.done() and not interrupted() else None


async def _prepare(run_input: AgentInput) -> Setup:
    request = PrepareRequest(
        agent=run_input.agent,
        model=run_input.model,
        instructions=run_input.instructions,
        tools=run_input.tools,
        config=run_input.config.model_dump(mode="json", exclude_unset=True),
    )
    return await workflow.execute_activity(
        "prepare",
        request,
        result_type=Setup,
        start_to_close_timeout=timedelta(seconds=ATTEMPT_S),
        schedule_to_close_timeout=timedelta(seconds=run_input.config.timeout_s),
        retry_policy=RetryPolicy(maximum_interval=timedelta(seconds=10)),
        summary=f"agent {run_input.agent}",
    )
