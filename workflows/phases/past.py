"""The past of a fork, which is read through the worker."""

import asyncio
from datetime import timedelta
from typing import Any

from pydantic import ValidationError
from temporalio import workflow
from temporalio.common import RetryPolicy
from temporalio.exceptions import ApplicationError

from orga.workflows.decisions.past import shared
from orga.workflows.phases.control.interrupt import result_of
from orga.workflows.phases.run import Run
from orga.workflows.types.checks import InvalidInput
from orga.workflows.types.names import READ_PAST
from orga.workflows.types.past import ForkInput
from orga.workflows.types.state import AgentState

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
    run.raise_if_interrupted()
    try:
        run.change(shared, AgentState.model_validate(past))
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
