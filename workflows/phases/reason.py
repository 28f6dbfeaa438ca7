"""Reason: one model call, its context handed over by reference."""

import asyncio
from dataclasses import dataclass
from datetime import timedelta

from temporalio import workflow
from temporalio.common import RetryPolicy
from temporalio.exceptions import ActivityError

from workflows.decisions.conversation import handed_over
from workflows.decisions.limits import output_allowance, server_limit_s
from workflows.decisions.replies import Judged, judged
from workflows.decisions.window import messages_to_drop
from workflows.phases.failures import failure_text, is_out_of_time
from workflows.phases.interrupt import settle
from workflows.phases.run import Run
from workflows.types.context import ReasonRequest
from workflows.types.digest import record_digest, reference
from workflows.types.messages import Reply
from workflows.types.state import Conversation

MAX_ATTEMPTS = 10
HEARTBEAT_TIMEOUT_S = 10.0


@dataclass(frozen=True)
class Proposed:
    """What the model proposes, and the conversation once the model has seen all of it."""

    judged: Judged
    seen: Conversation


@dataclass(frozen=True)
class NoReply:
    """The model call did not succeed; `detail` is empty when it was interrupted."""

    detail: str
    is_out_of_time: bool = False
    """The server gave up at its limit, which knows nothing of pauses: with time left on the clock it is asked again."""


async def propose(run: Run) -> Proposed | NoReply:
    """Ask the model for its next step."""
    state, config = run.state, run.config
    context, seen = handed_over(state.conversation, messages_to_drop(state.conversation, config.context_token_budget))
    request = ReasonRequest(iteration=state.iteration + 1, context=context)
    if not state.conversation.sent:
        request = request.model_copy(update={"setup": reference(record_digest(run.setup))})
    allowance = output_allowance(state, config)
    if allowance < config.max_output_tokens:
        request = request.model_copy(update={"max_output_tokens": allowance})
    call = asyncio.create_task(_call(request, server_limit_s(state, config, workflow.now())))
    await settle([call], run.is_interrupted)
    if not call.done() or call.cancelled():
        return NoReply("")
    error = call.exception()
    if error is None:
        return Proposed(judged(call.result()), seen)
    if not isinstance(error, ActivityError):
        raise error
    return NoReply("") if run.is_interrupted() else NoReply(failure_text(error), is_out_of_time(error))


async def _call(request: ReasonRequest, limit_s: int) -> Reply:
    return await workflow.execute_activity(
        "reason",
        request,
        result_type=Reply,
        activity_id=str(request.iteration),
        schedule_to_close_timeout=timedelta(seconds=limit_s),
        heartbeat_timeout=timedelta(seconds=HEARTBEAT_TIMEOUT_S),
        retry_policy=RetryPolicy(maximum_attempts=MAX_ATTEMPTS, maximum_interval=timedelta(seconds=60)),
        cancellation_type=workflow.ActivityCancellationType.WAIT_CANCELLATION_COMPLETED,
    )
