"""Finds runs that are stuck because their workflow task fails at every attempt, although workers are running."""

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass
from shlex import quote

from temporalio.api.enums.v1 import EventType, WorkflowTaskFailedCause
from temporalio.api.history.v1 import WorkflowTaskFailedEventAttributes
from temporalio.client import Client, WorkflowExecutionDescription
from temporalio.service import RPCError

from orga.client.history.chain import page_from_end
from orga.workflows.types.text import can_be_typed, one_line

CAUSE_CHARS = 300
LATEST_EVENTS = 200
"""The number of events that are read from the end. Only signals can have arrived since the failure."""

MAX_CONCURRENT_CHECKS = 10

_HARMLESS_CAUSES = {
    WorkflowTaskFailedCause.WORKFLOW_TASK_FAILED_CAUSE_RESET_WORKFLOW,
    WorkflowTaskFailedCause.WORKFLOW_TASK_FAILED_CAUSE_UNHANDLED_COMMAND,
    WorkflowTaskFailedCause.WORKFLOW_TASK_FAILED_CAUSE_FORCE_CLOSE_COMMAND,
    WorkflowTaskFailedCause.WORKFLOW_TASK_FAILED_CAUSE_RESET_STICKY_TASK_QUEUE,
}
"""Causes that a retry resolves: a reset, or a task that new events overtook."""


@dataclass(frozen=True)
class FailingTask:
    """The failure of a run's latest workflow task."""

    workflow_id: str
    attempts: int
    cause: str

    @property
    def problem_line(self) -> str:
        """One line with the number of failed attempts and the cause."""
        return f"its workflow task fails, {self.attempts} times so far: {self.cause}"

    @property
    def remedy(self) -> str:
        """The remedy for an operator, with a command if the id can be typed."""
        fix = "fix the cause and restart the workers"
        if not can_be_typed(self.workflow_id):
            return fix
        return f"{fix}, or rewind the run to before the failure: orga rewind {quote(self.workflow_id)} --to-iteration N"


async def failing_task(client: Client, description: WorkflowExecutionDescription) -> FailingTask | None:
    """Return the failure that blocks a run, or None if it is fine, has ended, or only waits for a worker."""
    pending = description.raw_description.pending_workflow_task
    if pending.attempt < 2:
        return None
    failed = await _latest_failure(client, description)
    if failed is None or failed.cause in _HARMLESS_CAUSES:
        return None
    cause = failed.failure.message or WorkflowTaskFailedCause.Name(failed.cause)
    return FailingTask(description.id, pending.attempt - 1, one_line(cause, CAUSE_CHARS))


async def failing_tasks(client: Client, workflow_ids: Iterable[str]) -> dict[str, FailingTask]:
    """Return the failing tasks of these runs, by id."""
    slots = asyncio.Semaphore(MAX_CONCURRENT_CHECKS)

    async def check(workflow_id: str) -> FailingTask | None:
        async with slots:
            try:
                return await failing_task(client, await client.get_workflow_handle(workflow_id).describe())
            except RPCError:  # the run no longer exists, or the server is lost, which the caller reports
                return None

    found = await asyncio.gather(*map(check, workflow_ids))
    return {each.workflow_id: each for each in found if each is not None}


async def _latest_failure(
    client: Client, description: WorkflowExecutionDescription
) -> WorkflowTaskFailedEventAttributes | None:
    """Return the failure of the last workflow task in the history, unless it timed out or succeeded."""
    page = await page_from_end(client, description.id, description.run_id, size=LATEST_EVENTS)
    for event in page.history.events:
        match event.event_type:
            case EventType.EVENT_TYPE_WORKFLOW_TASK_FAILED:
                return event.workflow_task_failed_event_attributes
            case EventType.EVENT_TYPE_WORKFLOW_TASK_COMPLETED | EventType.EVENT_TYPE_WORKFLOW_TASK_TIMED_OUT:
                return None
            case _:
                continue
    return None
