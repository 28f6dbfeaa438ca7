"""Reason: one model call. Its context is passed by reference, and compacted first if it exceeds its budget.

A call sends heartbeats, is retried, and ends if the run is interrupted. If the context was too long for the provider,
the call is repeated once with half of it. If a content filter refused it, the call is repeated without likely causes.
"""

from collections.abc import Callable
from datetime import timedelta
from typing import NamedTuple

from temporalio import workflow
from temporalio.common import RetryPolicy
from temporalio.exceptions import ActivityError

from orga.workflows.decisions.compaction import Compaction, can_afford_summary, compaction, ready_summary, with_summary
from orga.workflows.decisions.conversation import (
    halved_budget,
    is_within_budget,
    message_budget,
    reference_and_seen,
    with_calibration,
    with_frame_size,
)
from orga.workflows.decisions.limits import (
    can_retry_model_call,
    lowered_effort,
    output_allowance,
    server_timeout_seconds,
    stop_reason,
)
from orga.workflows.decisions.observe import ClassifiedReply, classify_reply, with_stop
from orga.workflows.decisions.refused_content import (
    with_new_replaced,
    with_refusal_noted,
    without_new_data,
    without_older,
)
from orga.workflows.decisions.result import reason_summary, without_refused_calls
from orga.workflows.phases.agent_run import Run
from orga.workflows.phases.control.failure_text import failure_text
from orga.workflows.phases.control.run import Interrupted
from orga.workflows.phases.control.visibility import wait_if_paused
from orga.workflows.phases.failures import is_context_overflow, is_out_of_time, is_refused_content
from orga.workflows.types.context import ContextRef, ReasonRequest, record_digest, short_digest
from orga.workflows.types.control import Stop
from orga.workflows.types.conversation import SUMMARY_CALL, Conversation, SummariseRequest
from orga.workflows.types.messages import Reply, ranges_length
from orga.workflows.types.state import AgentState

HEARTBEAT_TIMEOUT_S = 10.0
MAX_RETRY_INTERVAL_S = 60


class ModelCall(NamedTuple):
    """An activity that returns a `Reply`."""

    activity: str
    activity_id: str
    request: ReasonRequest | SummariseRequest
    limit_s: int
    """Seconds for all attempts together."""
    max_attempts: int
    summary: str | None = None
    result: type[Reply] = Reply


async def execute_model_call(run: Run, call: ModelCall) -> Reply | ActivityError:
    """Return the model's reply, or the error of the last attempt. Raise Interrupted if the run is interrupted first."""
    try:
        return await run.wait_for_activity(_call_model(call))
    except ActivityError as error:
        return error


async def _call_model(call: ModelCall) -> Reply:
    return await workflow.execute_activity(
        call.activity,
        call.request,
        result_type=call.result,
        activity_id=call.activity_id,
        summary=call.summary,
        schedule_to_close_timeout=timedelta(seconds=call.limit_s),
        heartbeat_timeout=timedelta(seconds=HEARTBEAT_TIMEOUT_S),
        retry_policy=RetryPolicy(
            maximum_attempts=call.max_attempts, maximum_interval=timedelta(seconds=MAX_RETRY_INTERVAL_S)
        ),
        cancellation_type=workflow.ActivityCancellationType.WAIT_CANCELLATION_COMPLETED,
    )


SUMMARY_TIMEOUT_S = 120
SUMMARY_ATTEMPTS = 3


async def compact_context(run: Run, token_budget: int) -> tuple[ContextRef, Conversation]:
    """Return the reference for a model call within the budget, and the conversation after that call.

    Raise Interrupted if the run has to end first, possibly at a limit that the call for a summary has reached.
    """
    if is_within_budget(run.state.conversation, token_budget):
        return reference_and_seen(run.state.conversation)
    plan = compaction(run.state.conversation, run.config.context_strategy, token_budget)
    if plan.summary_tokens and ready_summary(run.state.conversation, plan.drop) is None:
        reply = await _request_summary(run, plan) if can_afford_summary(run.state, plan.summary_tokens) else None
        run.change_state(with_summary, plan.drop, plan.summary_tokens, reply)
        if run.is_interrupted() or stop_reason(run.state, run.config, run.now) is not None:
            raise Interrupted
    conversation = run.state.conversation
    return reference_and_seen(conversation, plan.drop, plan.mask, ready_summary(conversation, plan.drop))


async def _request_summary(run: Run, plan: Compaction) -> Reply | None:
    """Return a model's summary of the dropped messages. None if it failed. The run then continues without a summary."""
    state = run.state
    context = ContextRef(head=short_digest(state.conversation.digest))
    request = SummariseRequest(
        iteration=state.iteration + 1,
        context=context.with_forget() if state.conversation.forget else context,
        max_output_tokens=plan.summary_tokens,
        ranges=plan.drop,
    )
    call = ModelCall(
        "summarise",
        f"{request.iteration}.{SUMMARY_CALL}",
        request,
        limit_s=min(server_timeout_seconds(state, run.now), SUMMARY_TIMEOUT_S),
        max_attempts=SUMMARY_ATTEMPTS,
        summary=f"{ranges_length(plan.drop)} messages",
    )
    reply = await execute_model_call(run, call)
    if isinstance(reply, Reply):
        return reply
    workflow.logger.warning("no summary: %s", failure_text(reply))
    return None


MAX_ATTEMPTS = 10


class ProposedReply(NamedTuple):
    """The model's proposal, and the conversation after the model has seen all of it."""

    classified: ClassifiedReply
    conversation: Conversation


class ModelPrompt(NamedTuple):
    """A request to the model: its activity, the type of its request, and the type of its reply."""

    activity: str = "reason"
    request: Callable[[int, ContextRef], ReasonRequest] = lambda iteration, context: ReasonRequest(
        iteration=iteration, context=context
    )
    result: type[Reply] = Reply


NEXT_STEP_PROMPT = ModelPrompt()


async def propose_reply(run: Run, prompt: ModelPrompt = NEXT_STEP_PROMPT) -> ProposedReply | ActivityError:
    """Return the model's proposal, or the error of its last attempt.

    A context that is too long for the model is halved, if possible, and sent once more.
    """
    run.change_state(with_frame_size)
    context, sent = await compact_context(run, message_budget(run.state))
    answer = await _ask_model(run, prompt, context, sent)
    if isinstance(answer, ProposedReply):
        return answer
    if is_refused_content(answer):
        return await _ask_without_refused(run, prompt, context, answer)
    if is_context_overflow(answer):
        shorter_context, shorter = await compact_context(run, halved_budget(sent))
        if shorter.tokens < sent.tokens:
            return await _ask_model(run, prompt, shorter_context, shorter)
    return answer


def may_ask_again(run: Run, error: ActivityError) -> bool:
    """Return True if the server gave up at its limit, which ignores pauses, while time is left on the run's clock."""
    return is_out_of_time(error) and can_retry_model_call(run.state, run.now)


async def end_without_reply(run: Run, error: ActivityError) -> None:
    """End the run because it has no reply, unless the loop may ask the model again."""
    if not may_ask_again(run, error):
        run.change_state(with_stop, Stop("error", failure_text(error)))
    await wait_if_paused(run)


async def _ask_without_refused(
    run: Run, prompt: ModelPrompt, refused: ContextRef, error: ActivityError
) -> ProposedReply | ActivityError:
    """Ask again without content that the filter may have refused. If nothing helps, replace the new content."""
    before, summary = run.state.conversation, ready_summary(run.state.conversation, refused.drop)
    why, asked = failure_text(error), {refused.head}
    for lighter in (without_new_data(before, refused.mask), without_older(before)):
        if lighter.drop:
            context, seen = reference_and_seen(lighter.conversation, lighter.drop, lighter.mask)
        else:
            context, seen = reference_and_seen(lighter.conversation, refused.drop, lighter.mask, summary)
        if context.head in asked:
            continue
        asked.add(context.head)
        answer = await _ask_model(run, prompt, context, seen)
        if isinstance(answer, ProposedReply) or not is_refused_content(answer):
            run.change_state(with_refusal_noted, before, seen, why)
            return answer
    run.change_state(with_new_replaced)
    run.change_state(with_refusal_noted, before, run.state.conversation, why)
    return error


def paused_reply(run: Run) -> ProposedReply | None:
    """Return the reply that waited for people when the previous segment continued as new, or None."""
    if (reply := run.state.pending) is None:
        return None
    run.change_state(AgentState.with_dialogue, pending=None)
    return _proposed_reply(run, reply, run.state.conversation)


def _proposed_reply(run: Run, reply: Reply, seen: Conversation) -> ProposedReply:
    return ProposedReply(classify_reply(reply, wants_data=run.setup.output_schema is not None), seen)


async def _ask_model(
    run: Run, prompt: ModelPrompt, context: ContextRef, seen: Conversation
) -> ProposedReply | ActivityError:
    request = _prompt_request(run, prompt, context)
    call = ModelCall(
        prompt.activity,
        str(request.iteration),
        request,
        limit_s=server_timeout_seconds(run.state, run.now),
        max_attempts=MAX_ATTEMPTS,
        summary=reason_summary(run.state),
        result=prompt.result,
    )
    reply = await execute_model_call(run, call)
    if not isinstance(reply, Reply):
        return reply
    run.change_state(with_calibration, seen, 0 if reply.usage.estimated else reply.usage.input_tokens)
    run.change_state(without_refused_calls)
    return _proposed_reply(run, reply, seen)


def _prompt_request(run: Run, prompt: ModelPrompt, context: ContextRef) -> ReasonRequest:
    state, config = run.state, run.config
    setup_digest = "" if state.conversation.sent else short_digest(record_digest(run.setup))
    allowance = output_allowance(state, config)
    own_limit = None if allowance == config.max_output_tokens else allowance
    return prompt.request(state.iteration + 1, context).with_settings(setup_digest, own_limit, lowered_effort(state))
