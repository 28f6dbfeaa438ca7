"""What the model is to see: the conversation by reference, compacted where it outgrew its budget."""

from temporalio import workflow

from orga.workflows.decisions.compaction import Compaction, affords_summary, compaction, ready_summary, with_summary
from orga.workflows.decisions.conversation import handed_over
from orga.workflows.decisions.limits import server_limit_s, stop_reason
from orga.workflows.phases.control.failures import failure_text
from orga.workflows.phases.control.interrupt import Interrupted
from orga.workflows.phases.model_call import ModelCall, reply_to
from orga.workflows.phases.run import Run
from orga.workflows.types.context import ContextRef
from orga.workflows.types.digest import reference
from orga.workflows.types.messages import Reply, length
from orga.workflows.types.state import Conversation
from orga.workflows.types.summary import SUMMARY_CALL, SummariseRequest

LIMIT_S = 120
MAX_ATTEMPTS = 3


async def compact_context(run: Run, token_budget: int) -> tuple[ContextRef, Conversation]:
    """Return what the model is to see, its messages within the budget, and the conversation once it has.

    Raises:
        Interrupted: The run is to end first, maybe since a limit is reached by what a summary used.
    """
    plan = compaction(run.state.conversation, run.config.context_strategy, token_budget)
    if plan.summary_tokens and ready_summary(run.state.conversation, plan.drop) is None:
        reply = await _summary(run, plan) if affords_summary(run.state, plan.summary_tokens) else None
        run.change(with_summary, plan.drop, plan.summary_tokens, reply)
        if run.is_interrupted() or stop_reason(run.state, run.config, run.now) is not None:
            raise Interrupted
    conversation = run.state.conversation
    return handed_over(conversation, plan.drop, plan.mask, ready_summary(conversation, plan.drop))


async def _summary(run: Run, plan: Compaction) -> Reply | None:
    """Return a model's summary of what goes, or None when it cannot be had: the run goes on without."""
    reply = await reply_to(run, _call(run, plan))
    if isinstance(reply, Reply):
        return reply
    workflow.logger.warning("no summary: %s", failure_text(reply))
    return None


def _call(run: Run, plan: Compaction) -> ModelCall:
    state = run.state
    request = SummariseRequest(
        iteration=state.iteration + 1,
        context=ContextRef(head=reference(state.conversation.digest)),
        max_output_tokens=plan.summary_tokens,
        ranges=plan.drop,
    )
    return ModelCall(
        "summarise",
        f"{request.iteration}.{SUMMARY_CALL}",
        request,
        limit_s=min(server_limit_s(state, run.now), LIMIT_S),
        max_attempts=MAX_ATTEMPTS,
        summary=f"{length(plan.drop)} messages",
    )
