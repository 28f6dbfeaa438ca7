"""Knowledge: recalls items before a reasoning step, and stores learnings at the end.

If the store cannot be reached, a run continues without it, and its journal says so.
"""

import asyncio
from datetime import timedelta

from temporalio import workflow
from temporalio.common import RetryPolicy
from temporalio.exceptions import FailureError

from orga.workflows.decisions import recall
from orga.workflows.phases import gate
from orga.workflows.phases.agent_run import Run
from orga.workflows.phases.attempt import CallIdentity, execute_attempt
from orga.workflows.phases.control.failure_text import failure_text
from orga.workflows.phases.control.run import Interrupted
from orga.workflows.types.names import RECALL_CONTEXT
from orga.workflows.types.recall import RecalledContext, RecallRequest, recall_id
from orga.workflows.types.tool_calls.gate import LEARNINGS

ATTEMPT_S = 5.0
"""Seconds for an attempt to recall. This is more than the activity's own limit."""

MAX_ATTEMPTS = 2

LEARNING_TIMEOUT_S = 60.0
"""Seconds to store learnings, including a second attempt after a worker has died."""

ABORTED_LEARNING_TIMEOUT_S = 20.0


async def recall_context(run: Run) -> None:
    """Add items that fit the next step to the conversation, if the words or paths to search for have changed."""
    if (request := recall.due_recall(run.state)) is None:
        return
    found = await run.wait_for_result(asyncio.create_task(_recall(request)), run.is_interrupted)
    run.change_state(recall.with_recalled_context, found, recall_id(request.iteration))


async def _recall(request: RecallRequest) -> RecalledContext:
    try:
        return await workflow.execute_local_activity(
            RECALL_CONTEXT,
            request,
            activity_id=recall_id(request.iteration),
            result_type=RecalledContext,
            start_to_close_timeout=timedelta(seconds=ATTEMPT_S),
            retry_policy=RetryPolicy(maximum_attempts=MAX_ATTEMPTS, initial_interval=timedelta(milliseconds=100)),
        )
    except FailureError as error:
        workflow.logger.warning("nothing could be recalled: %s", failure_text(error))
        return request.failed_recall(failure_text(error))


async def persist_learnings(run: Run, text: str, turn: int = 0, confidence: float | None = None) -> None:
    """Store the learnings of a run or a turn once, if the config asks for it and the gate allows it.

    Learnings are stored by a call of `store_knowledge`, so a run without that tool stores nothing. It also stores
    nothing if a critic would have to review the call, because nobody is asked after the end.
    """
    call = recall.learning_call(run.state, text, confidence)
    if call is None or run.setup.is_reviewed(call):
        return
    limit_s = LEARNING_TIMEOUT_S if run.state.aborted is None else ABORTED_LEARNING_TIMEOUT_S
    deadline, has_new_abort = run.start_timer(limit_s, "to store what was learnt"), run.watch_for_abort()

    def is_late() -> bool:
        return deadline.done() or has_new_abort()

    try:
        (result,) = await gate.judge_calls(run, (call,), (LEARNINGS,), "learning", is_late)
        if result.permitted is not None:
            identity = CallIdentity(LEARNINGS, recall.learning_key(run.state, turn), is_late)
            await run.settle_tasks([asyncio.create_task(execute_attempt(run, result.permitted, identity))], is_late)
    except Interrupted:
        return
    finally:
        deadline.cancel()
