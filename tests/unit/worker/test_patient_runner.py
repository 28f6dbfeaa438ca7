"""Queries are answered last: after pending local activities, and then in the same workflow task."""

from collections.abc import Sequence
from typing import Any

import pytest
from temporalio.bridge.proto.workflow_activation import WorkflowActivation, WorkflowActivationJob
from temporalio.bridge.proto.workflow_commands import WorkflowCommand
from temporalio.bridge.proto.workflow_completion import WorkflowActivationCompletion
from temporalio.worker import WorkflowInstance

from orga.client.runners.workflows import PatientInstance


class Scripted(WorkflowInstance):
    """Workflow code that follows a script and answers every query."""

    def __init__(self) -> None:
        self.next: list[WorkflowCommand] = []
        self.seen: list[WorkflowActivation] = []

    def activate(self, act: WorkflowActivation) -> WorkflowActivationCompletion:
        self.seen.append(act)
        done = WorkflowActivationCompletion()
        done.successful.SetInParent()
        for job in act.jobs:
            if job.HasField("query_workflow"):
                done.successful.commands.add().respond_to_query.query_id = job.query_workflow.query_id
        done.successful.commands.extend(self.next)
        self.next = []
        return done

    def get_serialization_context(self, command_info: Any) -> None: ...
    def get_external_store_context(self, command_info: Any) -> Any: ...
    def get_info(self) -> Any: ...


def local(seq: int) -> WorkflowCommand:
    command = WorkflowCommand()
    command.schedule_local_activity.seq = seq
    return command


def cancelling() -> WorkflowCommand:
    command = WorkflowCommand()
    command.request_cancel_activity.seq = 9
    return command


def ended(seq: int, *, is_local: bool = True) -> WorkflowActivationJob:
    job = WorkflowActivationJob()
    job.resolve_activity.seq, job.resolve_activity.is_local = seq, is_local
    return job


def query(number: int | str) -> WorkflowActivationJob:
    job = WorkflowActivationJob()
    job.query_workflow.query_id = str(number)
    return job


class Worker:
    def __init__(self) -> None:
        self.code = Scripted()
        self._patient = PatientInstance(self.code)

    def commands_after(
        self, *jobs: WorkflowActivationJob, task: int = 3, then: Sequence[WorkflowCommand] = ()
    ) -> list[str]:
        """Return the commands that the worker sends for these jobs."""
        self.code.next = list(then)
        activation = WorkflowActivation(history_length=task, jobs=jobs)
        commands = self._patient.activate(activation).successful.commands
        return [command.respond_to_query.query_id or str(command.WhichOneof("variant")) for command in commands]


@pytest.fixture
def worker() -> Worker:
    return Worker()


def test_a_query_is_answered_immediately_without_pending_activities(worker: Worker) -> None:
    worker.commands_after(ended(1, is_local=False))
    assert worker.commands_after(query(1)) == ["1"]


def test_a_query_waits_for_the_local_activity_and_is_answered_after_the_next_commands(worker: Worker) -> None:
    worker.commands_after(ended(1, is_local=False), then=[local(2)])
    assert worker.commands_after(query(1), query(2)) == []
    activity = WorkflowCommand()
    activity.schedule_activity.seq = 3
    assert worker.commands_after(ended(2), then=[activity]) == ["schedule_activity", "1", "2"]
    assert worker.commands_after(query(3)) == ["3"]


def test_a_query_waits_for_all_local_activities(worker: Worker) -> None:
    worker.commands_after(then=[local(2), local(3)])
    assert worker.commands_after(query(1)) == []
    assert worker.commands_after(ended(3), then=[local(4)]) == ["schedule_local_activity"]
    assert worker.commands_after(ended(2)) == []
    assert worker.commands_after(ended(4)) == ["1"]


def test_the_end_of_another_activity_does_not_end_the_wait(worker: Worker) -> None:
    worker.commands_after(then=[local(2)])
    assert worker.commands_after(query(1)) == []
    assert worker.commands_after(ended(2, is_local=False)) == []
    assert worker.commands_after(ended(2)) == ["1"]


def test_an_answer_does_not_complete_a_task_with_a_new_cancellation(worker: Worker) -> None:
    worker.commands_after(then=[local(2)])
    worker.commands_after(query(1))
    assert worker.commands_after(ended(2), then=[cancelling()]) == ["request_cancel_activity"]
    assert worker.commands_after(ended(9, is_local=False)) == ["1"]


def test_a_cancelled_local_activity_does_not_delay_later_queries(worker: Worker) -> None:
    given_up = WorkflowCommand()
    given_up.request_cancel_local_activity.seq = 2
    worker.commands_after(then=[local(2)])
    worker.commands_after(query(1))
    assert worker.commands_after(task=3, then=[given_up]) == ["request_cancel_local_activity"]
    assert worker.commands_after(query(2), task=9) == ["2"]


def test_an_unanswered_query_is_asked_again_by_the_server(worker: Worker) -> None:
    worker.commands_after(then=[local(2)])
    worker.commands_after(query(1))
    assert worker.commands_after(ended(2), task=9) == []
    assert worker.commands_after(query(1), task=9) == ["1"]


def test_a_query_without_a_task_is_answered_immediately(worker: Worker) -> None:
    worker.commands_after(then=[local(2)])
    assert worker.commands_after(query("legacy_query")) == ["legacy_query"]


def test_an_evicted_run_answers_no_query(worker: Worker) -> None:
    worker.commands_after(then=[local(2)])
    worker.commands_after(query(1))
    eviction = WorkflowActivationJob()
    eviction.remove_from_cache.SetInParent()
    assert worker.commands_after(ended(2), eviction) == []


def test_a_query_has_the_time_of_the_last_activation_and_no_side_effect(worker: Worker) -> None:
    worker.commands_after(then=[local(2)])
    worker.commands_after(query(1))
    worker.commands_after(ended(2))
    last, asked = worker.code.seen[-2:]
    assert (asked.timestamp, asked.history_length) == (last.timestamp, last.history_length)
    assert (last.is_replaying, asked.is_replaying) == (False, True)
