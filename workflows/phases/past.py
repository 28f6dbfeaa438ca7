"""Past: a fork reads, through the worker, what the run knew whose past it shares; its starter only says which."""

import asyncio
from datetime import timedelta
from typing import Any

from pydantic import ValidationError
from temporalio import workflow
from temporalio.common import RetryPolicy
from temporalio.exceptions import ApplicationError

from workflows.decisions import forks
from workflows.phases.interrupt import result_of
from workflows.phases.run import Run
from workflows.types.fork import ForkInput
from workflows.types.input import InvalidInput
from workflows.types.names import READ_PAST
from workflows.types.state import AgentState

ATTEMPT_S = 120.0
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
    past = await result_of(asyncio.create_task(run.event(_read(wish))), run.is_interrupted)
    run.go_on()
    try:
        run.change(forks.shared, AgentState.model_validate(past))
    except (ValidationError, InvalidInput, OverflowError) as error:
        raise ApplicationError(f"fork: {error}", type="InvalidInput", non_retryable=True) from None


async def _read(wish: ForkInput) -> Any:
    return await workflow.execute_activity(
        READ_PAST,
        wish,
        start_to_close_timeout=timedelta(seconds=ATTEMPT_S),
        schedule_to_close_timeout=timedelta(seconds=wish.config.timeout_s),
        heartbeat_timeout=timedelta(seconds=HEARTBEAT_TIMEOUT_S),
        retry_policy=RetryPolicy(maximum_interval=timedelta(seconds=10)),
        summary=f"iteration {wish.fork.iteration} of {wish.fork.workflow_id}",
    )
