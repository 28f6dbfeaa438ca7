"""One call of a tool that is an activity of another worker, in any language.

The id of the workflow ends with the call's idempotency key. If a worker dies while the tool's own activity waits for
the call, nothing is lost: the next attempt of that activity finds the workflow under the same id.
"""

from datetime import timedelta
from typing import Any

from temporalio import workflow
from temporalio.common import RetryPolicy
from temporalio.exceptions import ApplicationError

from orga.workflows.phases.control.handlers import first_argument
from orga.workflows.types.names import ACTIVITY_CALL_WORKFLOW
from orga.workflows.types.record import parse_record
from orga.workflows.types.tool_calls.tools import ActivityCall


@workflow.defn(name=ACTIVITY_CALL_WORKFLOW, sandboxed=False)
class ActivityCallWorkflow:
    """Makes the call once. The tool's own activity waits for the result, and decides whether to try again."""

    @workflow.run
    async def run(self, *given: Any) -> Any:
        """Return the activity's result. Input that is no `ActivityCall` is refused as `InvalidInput`."""
        try:
            call = parse_record(ActivityCall, first_argument(given), long=frozenset({"arguments", "context"}))
        except ValueError as error:
            raise ApplicationError(str(error), type="InvalidInput", non_retryable=True) from None
        if call.task_queue == workflow.info().task_queue:  # a call of our own tools has to pass the gate
            why = f"{call.activity} is on the queue of the run itself; serve it on another one"
            raise ApplicationError(why, type="InvalidInput", non_retryable=True)
        silence_s = call.heartbeat_timeout_s
        return await workflow.execute_activity(
            call.activity,
            args=[call.arguments] if call.context is None else [call.arguments, call.context],
            task_queue=call.task_queue,
            schedule_to_start_timeout=timedelta(seconds=call.pickup_s),
            start_to_close_timeout=timedelta(seconds=call.timeout_s),
            heartbeat_timeout=None if silence_s is None else timedelta(seconds=silence_s),
            retry_policy=RetryPolicy(maximum_attempts=1),
        )
