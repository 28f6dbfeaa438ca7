"""A workflow runner that answers queries last: never while a local activity is running.

The SDK (temporalio 1.35) ends the workflow task with the answer. By then the result of the local activity is in the
history, but workflow code receives it only in the next task, after signals that arrived meanwhile. A replay delivers it
in the first task, before those signals: at another time and in another order.
"""

from collections.abc import Iterable

from temporalio.bridge.proto.workflow_activation import WorkflowActivation, WorkflowActivationJob
from temporalio.bridge.proto.workflow_commands import WorkflowCommand
from temporalio.bridge.proto.workflow_completion import WorkflowActivationCompletion
from temporalio.worker import WorkflowInstance, WorkflowInstanceDetails

from orga.client.history.bounded_arguments import bound_activation
from orga.client.runners.wrapped import WrappedInstance, WrappedRunner

_DIRECT_QUERY_ID = "legacy_query"
"""The id of a query that comes without a workflow task. Its answer ends no task."""


class PatientRunner(WrappedRunner):
    """Adds patience to another runner."""

    def create_instance(self, det: WorkflowInstanceDetails) -> WorkflowInstance:
        """Create an instance that answers queries last."""
        return PatientInstance(super().create_instance(det))


class PatientInstance(WrappedInstance):
    """One run in the cache of a worker, and its unanswered queries."""

    def __init__(self, instance: WorkflowInstance) -> None:
        super().__init__(instance)
        self._under_way: set[int] = set()
        """Numbers of local activities whose end workflow code has not received."""
        self._waiting_queries: list[WorkflowActivationJob] = []
        """Waiting queries of one workflow task. The server repeats unanswered queries in the next task."""
        self._asked_at = 0

    def activate(self, act: WorkflowActivation) -> WorkflowActivationCompletion:
        """Run workflow code. Then, in the same task, answer the queries that arrived meanwhile."""
        bound_activation(act)
        if act.history_length != self._asked_at or any(job.HasField("remove_from_cache") for job in act.jobs):
            self._waiting_queries, self._asked_at = [], act.history_length
        if self._under_way and any(_is_task_job(job) for job in act.jobs):
            self._waiting_queries.extend(act.jobs)  # queries never come with anything else
            return _empty_completion()
        completion = super().activate(act)
        self._under_way -= {job.resolve_activity.seq for job in act.jobs if job.resolve_activity.is_local}
        self._under_way |= _scheduled_numbers(completion.successful.commands)
        self._under_way -= _cancelled_numbers(completion.successful.commands)
        if self._waiting_queries and not self._under_way and not _may_continue(completion):
            completion.successful.commands.extend(self._query_answers(act))
        return completion

    def _query_answers(self, act: WorkflowActivation) -> Iterable[WorkflowCommand]:
        asking = WorkflowActivation()
        asking.CopyFrom(act)
        asking.is_replaying = True  # the SDK sets this for every query
        del asking.jobs[:]
        asking.jobs.extend(self._waiting_queries)
        self._waiting_queries = []
        return super().activate(asking).successful.commands


def _is_task_job(job: WorkflowActivationJob) -> bool:
    return job.HasField("query_workflow") and job.query_workflow.query_id != _DIRECT_QUERY_ID


def _empty_completion() -> WorkflowActivationCompletion:
    completion = WorkflowActivationCompletion()
    completion.successful.SetInParent()
    return completion


def _scheduled_numbers(commands: Iterable[WorkflowCommand]) -> set[int]:
    local = (command.schedule_local_activity for command in commands if command.HasField("schedule_local_activity"))
    return {scheduled.seq for scheduled in local}


def _cancelled_numbers(commands: Iterable[WorkflowCommand]) -> set[int]:
    """Return the numbers that end at once, in this task, because nobody waits for them any more."""
    cancelled = (
        each.request_cancel_local_activity for each in commands if each.HasField("request_cancel_local_activity")
    )
    return {each.seq for each in cancelled}


def _may_continue(completion: WorkflowActivationCompletion) -> bool:
    """Return whether the SDK may have more jobs in this task, such as a cancellation. An answer would end the task."""
    if not completion.HasField("successful"):
        return True
    names = (command.WhichOneof("variant") or "" for command in completion.successful.commands)
    return any("cancel" in name and name != "cancel_timer" for name in names)
