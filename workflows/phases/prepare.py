"""Before the first iteration: what the run works with, asked once of the worker's configuration."""

from datetime import timedelta

from temporalio import workflow
from temporalio.common import RetryPolicy

from workflows.types.context import PrepareRequest, Setup
from workflows.types.input import AgentInput

ATTEMPT_S = 30.0


async def setup_of(run_input: AgentInput) -> Setup:
    """Return the setup.

    Raises:
        ActivityError: Unknown agent, tool or model; not retried.
    """
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
        retry_policy=RetryPolicy(maximum_interval=timedelta(seconds=10)),
        summary=f"agent {run_input.agent}",
    )
