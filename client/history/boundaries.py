"""Finds the end of an iteration in a chain of histories: the workflow task that schedules the next model call."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from temporalio.api.enums.v1 import EventType
from temporalio.api.history.v1 import HistoryEvent

from orga.client.errors import OrgaError
from orga.client.history.chain import RunHistory
from orga.workflows.types.names import PROMPT_ACTIVITIES


@dataclass(frozen=True)
class Boundary:
    """The end of an iteration. Iteration 0 ends when the run is prepared."""

    workflow_id: str
    run_id: str
    iteration: int
    event_id: int
    """Completion of the workflow task that has processed the whole iteration."""
    at: datetime
    """Workflow time in that task."""


class NoSuchIteration(OrgaError):
    """The run has not finished that iteration."""

    def __init__(self, workflow_id: str, iteration: int, begun: int, first: int = 0) -> None:
        there = f"there are {first} to {begun - 1}" if begun else "no model call was made yet"
        super().__init__(f"run {workflow_id!r} has no end of iteration {iteration} to go on from; {there}")


def boundary_of(workflow_id: str, runs: Sequence[RunHistory], iteration: int) -> Boundary:
    """Return the end of an iteration.

    Raises:
        NoSuchIteration: No model call follows it.
    """
    begun, first = 0, 0
    for run in runs:
        for event in run.events:
            number = _model_call_iteration(event)
            begun, first = max(begun, number), first or number
            if number == iteration + 1:
                task = event.activity_task_scheduled_event_attributes.workflow_task_completed_event_id
                return boundary_at(workflow_id, run, iteration, task)
    raise NoSuchIteration(workflow_id, iteration, begun, max(first - 1, 0))


def boundary_at(workflow_id: str, run: RunHistory, iteration: int, event_id: int) -> Boundary:
    """Return the boundary at a completed workflow task."""
    completed = run.events[event_id - 1].workflow_task_completed_event_attributes
    started = run.events[completed.started_event_id - 1]
    return Boundary(workflow_id, run.run_id, iteration, event_id, started.event_time.ToDatetime(tzinfo=UTC))


def _model_call_iteration(event: HistoryEvent) -> int:
    """Return the iteration whose model call this event schedules, or 0."""
    if event.event_type != EventType.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED:
        return 0
    attributes = event.activity_task_scheduled_event_attributes
    is_first = attributes.activity_type.name in PROMPT_ACTIVITIES and attributes.activity_id.isdigit()
    return int(attributes.activity_id) if is_first else 0
