"""A run that is stuck although workers are there: its workflow task fails, again and again, until that is mended."""

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass
from shlex import quote

from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.enums.v1 import EventType, WorkflowTaskFailedCause
from temporalio.api.history.v1 import WorkflowTaskFailedEventAttributes
from temporalio.api.workflowservice.v1 import GetWorkflowExecutionHistoryReverseRequest
from temporalio.client import Client, WorkflowExecutionDescription
from temporalio.service import RPCError

from orga.workflows.types.text import can_be_typed, one_line

CAUSE_CHARS = 300
LATEST_EVENTS = 200
"""That are read, from the end; what came in since the failure are signals at most."""

AT_ONCE = 10

_HARMLESS_CAUSES = {
    WorkflowTaskFailedCause.WORKFLOW_TASK_FAILED_CAUSE_RESET_WORKFLOW,
    WorkflowTaskFailedCause.WORKFLOW_TASK_FAILED_CAUSE_UNHANDLED_COMMAND,
    WorkflowTaskFailedCause.WORKFLOW_TASK_FAILED_CAUSE_FORCE_CLOSE_COMMAND,
    WorkflowTaskFailedCause.WORKFLOW_TASK_FAILED_CAUSE_RESET_STICKY_TASK_QUEUE,
}
"""A reset, or a task that lost against what came meanwhile: both are tried once more, and that goes well."""


@dataclass(frozen=True)
class FailingTask:
    """What the latest workflow task of a run failed by."""

    workflow_id: str
    attempts: int
    cause: str

    @property
    def told(self) -> str:
        """What is wrong, in one line."""
        return f"its workflow task fails, {self.attempts} times so far: {self.cause}"

    @property
    def way_out(self) -> str:
        """What helps."""
        mend = "mend the cause and restart the workers"
        if not can_be_typed(self.workflow_id):
            return mend
        return f"{mend}, or set it back to before: orga rewind {quote(self.workflow_id)} --to-iteration N"


async def failing_task(client: Client, description: WorkflowExecutionDescription) -> FailingTask | None:
    """Return what keeps a run from going on; None for one that is well, has ended, or only waits for a worker."""
    pending = description.raw_description.pending_workflow_task
    if pending.attempt < 2:
        return None
    failed = await _latest_failure(client, description)
    if failed is None or failed.cause in _HARMLESS_CAUSES:
        return None
    cause = failed.failure.message or WorkflowTaskFailedCause.Name(failed.cause)
    return FailingTask(description.id, pending.attempt - 1, one_line(cause, CAUSE_CHARS))


async def failing_tasks(client: Client, workflow_ids: Iterable[str]) -> dict[str, FailingTask]:
    """Return those of these runs whose tasks fail, by id."""
    some = asyncio.Semaphore(AT_ONCE)

    async def look(workflow_id: str) -> FailingTask | None:
        async with some:
            try:
                return await failing_task(client, await client.get_workflow_handle(workflow_id).describe())
            except RPCError:  # it has gone, or the server answers no more: what lists it will say so
                return None

    found = await asyncio.gather(*map(look, workflow_ids))
    return {each.workflow_id: each for each in found if each is not None}


async def _latest_failure(
    client: Client, description: WorkflowExecutionDescription
) -> WorkflowTaskFailedEventAttributes | None:
    """Return the failure of the last workflow task that the history tells of, unless that timed out or went well."""
    answer = await client.workflow_service.get_workflow_execution_history_reverse(
        GetWorkflowExecutionHistoryReverseRequest(
            namespace=client.namespace,
            execution=WorkflowExecution(workflow_id=description.id, run_id=description.run_id),
            maximum_page_size=LATEST_EVENTS,
        ),
        retry=True,
    )
    for event in answer.history.events:
        match event.event_type:
            case EventType.EVENT_TYPE_WORKFLOW_TASK_FAILED:
                return event.workflow_task_failed_event_attributes
            case EventType.EVENT_TYPE_WORKFLOW_TASK_COMPLETED | EventType.EVENT_TYPE_WORKFLOW_TASK_TIMED_OUT:
                return None
            case _:
                continue
    return None
