"""What the model is to see: the conversation by reference, compacted where it outgrew its budget."""

import asyncio
from datetime import timedelta

from temporalio import workflow
from temporalio.common import RetryPolicy
from temporalio.exceptions import ActivityError

from workflows.decisions.compaction import Compaction, compaction
from workflows.decisions.conversation import handed_over
from workflows.decisions.limits import server_limit_s, stop_reason
from workflows.decisions.summary import affords_summary, ready_summary, with_summary
from workflows.phases.failures import failure_text
from workflows.phases.interrupt import settle
from workflows.phases.run import Run
from workflows.types.context import ContextRef
from workflows.types.digest import reference
from workflows.types.messages import Reply
from workflows.types.ranges import length
from workflows.types.state import Conversation
from workflows.types.summary import SUMMARY_CALL, SummariseRequest

LIMIT_S = 120
MAX_ATTEMPTS = 3
HEARTBEAT_TIMEOUT_S = 10.0


async def compacted(run: Run, token_budget: int) -> tuple[ContextRef, Conversation] | None:
    """Return what the model is to see, its messages within the budget, and the conversation once it has.

    None when the run is to end first: it was interrupted, or a limit is reached by what a summary used.
    """
    plan = compaction(run.state.conversation, run.config.context_strategy, token_budget)
    if plan.summary_tokens and ready_summary(run.state.conversation, plan.drop) is None:
        reply = await _summary(run, plan) if affords_summary(run.state, plan.summary_tokens) else None
        if reply is not None or not run.is_interrupted():
            run.change(with_summary, plan.drop, plan.summary_tokens, reply)
        if run.is_interrupted() or stop_reason(run.state, run.config, workflow.now()) is not None:
            return None
    conversation = run.state.conversation
    return handed_over(conversation, plan.drop, plan.mask, ready_summary(conversation, plan.drop))


async def _summary(run: Run, plan: Compaction) -> Reply | None:
    """Return a model's summary of what goes, or None when it cannot be had: the run goes on without."""
    call = asyncio.create_task(_call(run, plan))
    await settle([call], run.is_interrupted)
    if not call.done() or call.cancelled():
        return None
    error = call.exception()
    if error is None:
        return call.result()
    if not isinstance(error, ActivityError):
        raise error
    workflow.logger.warning("no summary: %s", failure_text(error))
    return None


async def _call(run: Run, plan: Compaction) -> Reply:
    state = run.state
    request = SummariseRequest(
        iteration=state.iteration + 1,
        context=ContextRef(head=reference(state.conversation.digest)),
        max_output_tokens=plan.summary_tokens,
        ranges=plan.drop,
    )
    limit_s = min(server_limit_s(state, run.config, workflow.now()), LIMIT_S)
    return await workflow.execute_activity(
        "summarise",
        request,
        result_type=Reply,
        activity_id=f"{request.iteration}.{SUMMARY_CALL}",
        summary=f"{length(plan.drop)} messages",
        schedule_to_close_timeout=timedelta(seconds=limit_s),
        heartbeat_timeout=timedelta(seconds=HEARTBEAT_TIMEOUT_S),
        retry_policy=RetryPolicy(maximum_attempts=MAX_ATTEMPTS, maximum_interval=timedelta(seconds=60)),
        cancellation_type=workflow.ActivityCancellationType.WAIT_CANCELLATION_COMPLETED,
    )
