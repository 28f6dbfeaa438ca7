"""One call of a model: an activity that beats, is retried, and gives way to whatever interrupts the run."""

import asyncio
from dataclasses import dataclass
from datetime import timedelta

from temporalio import workflow
from temporalio.common import RetryPolicy
from temporalio.exceptions import ActivityError

from orga.workflows.phases.control.interrupt import result_of
from orga.workflows.phases.run import Run
from orga.workflows.types.context import CritiqueRequest, ReasonRequest
from orga.workflows.types.messages import Reply
from orga.workflows.types.summary import SummariseRequest

HEARTBEAT_TIMEOUT_S = 10.0
LONGEST_PAUSE_S = 60


@dataclass(frozen=True)
class ModelCall:
    """An activity that answers with a `Reply`."""

    activity: str
    activity_id: str
    request: ReasonRequest | SummariseRequest | CritiqueRequest
    limit_s: int
    """For all attempts together."""
    max_attempts: int
    summary: str | None = None
    """What the Temporal UI shows beside it."""


async def reply_to(run: Run, call: ModelCall) -> Reply | ActivityError:
    """Return what the model says, or why it says nothing.

    Raises:
        Interrupted: The run was interrupted first.
    """
    task = asyncio.create_task(run.event(_reply(call)))
    try:
        return await result_of(task, run.is_interrupted)
    except asyncio.CancelledError:  # of a review, when the tool calls beside it are cut short
        task.cancel()
        raise
    except ActivityError as error:
        return error


async def _reply(call: ModelCall) -> Reply:
    return await workflow.execute_activity(
        call.activity,
        call.request,
        result_type=Reply,
        activity_id=call.activity_id,
        summary=call.summary,
        schedule_to_close_timeout=timedelta(seconds=call.limit_s),
        heartbeat_timeout=timedelta(seconds=HEARTBEAT_TIMEOUT_S),
        retry_policy=RetryPolicy(
            maximum_attempts=call.max_attempts, maximum_interval=timedelta(seconds=LONGEST_PAUSE_S)
        ),
        cancellation_type=workflow.ActivityCancellationType.WAIT_CANCELLATION_COMPLETED,
    )
