"""What an activity that asks a model works with: the run it belongs to, and its context, found or rebuilt."""

from temporalio.exceptions import ApplicationError

from orga.activities.conversations import Conversations
from orga.activities.log_context import log_iteration
from orga.activities.own_run import own_run
from orga.activities.ports import Rebuilt, RunKey
from orga.workflows.types.context import DigestMismatch, ReasonRequest


async def model_context(conversations: Conversations, request: ReasonRequest) -> tuple[RunKey, Rebuilt]:
    """Return both.

    Raises:
        ApplicationError: `DigestMismatch`, not retryable: the history does not give what the workflow asked about.
    """
    log_iteration(request.iteration)
    run = own_run()
    try:
        return run, await conversations.resolve(run, request)
    except DigestMismatch as error:
        raise ApplicationError(str(error), type="DigestMismatch", non_retryable=True) from None
