"""Our workflows, and the runners with which workers and replays execute them.

Our workflows run outside the SDK's sandbox (`sandboxed=False`), because a sandbox costs more than most runs do.
Two tests replace it: no module of workflow code keeps state, and all recorded histories replay in the sandbox.
"""

from collections.abc import Callable, Iterable
from dataclasses import replace
from threading import Lock
from typing import Any

from temporalio.bridge.proto.workflow_activation import WorkflowActivation, WorkflowActivationJob
from temporalio.bridge.proto.workflow_commands import WorkflowCommand
from temporalio.bridge.proto.workflow_completion import WorkflowActivationCompletion
from temporalio.common import VersioningBehavior
from temporalio.converter import StorageDriverStoreContext
from temporalio.worker import UnsandboxedWorkflowRunner, WorkflowInstance, WorkflowInstanceDetails, WorkflowRunner
from temporalio.worker.workflow_sandbox import SandboxedWorkflowRunner
from temporalio.workflow import Info

from orga.client.history.values import bound_activation
from orga.workflows.activity_call import ActivityCallWorkflow
from orga.workflows.agent import AgentWorkflow
from orga.workflows.goal import GoalWorkflow
from orga.workflows.session import SessionWorkflow
from orga.workflows.settings_workflow import SettingsWorkflow
from orga.workflows.types.names import SETTINGS_WORKFLOW

REPLAY_BUILD = "replay"
"""Build id of replayers. Without it, the SDK reads all modules from disk to make one, which takes two seconds."""

Observer = Callable[[WorkflowActivation, WorkflowActivationCompletion], None]

WORKFLOWS: list[type[Any]] = [
    AgentWorkflow,
    GoalWorkflow,
    SessionWorkflow,
    SettingsWorkflow,
    ActivityCallWorkflow,
]
"""The workflows of every worker and of every replay."""


class WrappedRunner(WorkflowRunner):
    """Passes every call on to another runner."""

    def __init__(self, runner: WorkflowRunner) -> None:
        self._runner = runner

    def prepare_workflow(self, defn: Any) -> None:
        self._runner.prepare_workflow(defn)

    def set_worker_level_failure_exception_types(self, types: Any) -> None:
        self._runner.set_worker_level_failure_exception_types(types)

    def create_instance(self, det: WorkflowInstanceDetails) -> WorkflowInstance:
        return self._runner.create_instance(det)


class WrappedInstance(WorkflowInstance):
    """One run in a worker's cache. Passes every call on to another instance, one activation at a time.

    If an activation takes longer than two seconds, the SDK (temporalio 1.35) evicts the run while the activation still
    runs in another thread. Without a lock, both threads would execute the run, and no later eviction would succeed.
    """

    def __init__(self, instance: WorkflowInstance) -> None:
        self._instance = instance
        self._active = Lock()

    def activate(self, act: WorkflowActivation) -> WorkflowActivationCompletion:
        with self._active:
            return self._instance.activate(act)

    def get_serialization_context(self, command_info: Any) -> Any:
        return self._instance.get_serialization_context(command_info)

    def get_external_store_context(self, command_info: Any) -> StorageDriverStoreContext:
        return self._instance.get_external_store_context(command_info)

    def get_info(self) -> Info:
        return self._instance.get_info()

    def get_thread_id(self) -> int | None:
        return self._instance.get_thread_id()


class ObservedRunner(WrappedRunner):
    """Shows an observer each workflow task: what goes into workflow code and what comes out of it."""

    def __init__(self, runner: WorkflowRunner, observer: Observer) -> None:
        super().__init__(runner)
        self._observer = observer

    def create_instance(self, det: WorkflowInstanceDetails) -> WorkflowInstance:
        return _ObservedInstance(super().create_instance(det), self._observer)


class _ObservedInstance(WrappedInstance):
    def __init__(self, instance: WorkflowInstance, observer: Observer) -> None:
        super().__init__(instance)
        self._observer = observer

    def activate(self, act: WorkflowActivation) -> WorkflowActivationCompletion:
        bound_activation(act)
        completion = super().activate(act)
        self._observer(act, completion)
        return completion


_DIRECT_QUERY_ID = "legacy_query"
"""The id of a query that comes without a workflow task. It can be answered at once, because the answer ends no task."""


class PatientRunner(WrappedRunner):
    """Delays queries until no local activity is pending, because their answers end the workflow task."""

    def create_instance(self, det: WorkflowInstanceDetails) -> WorkflowInstance:
        return PatientInstance(super().create_instance(det))


class PatientInstance(WrappedInstance):
    """One run in the cache of a worker, and its unanswered queries."""

    def __init__(self, instance: WorkflowInstance) -> None:
        super().__init__(instance)
        self._pending_local_activities: set[int] = set()
        """The numbers of local activities whose results have not reached workflow code yet."""
        self._delayed_queries: list[WorkflowActivationJob] = []
        """Queries of one workflow task. The server repeats unanswered queries in the next task."""
        self._task_history_length = 0
        """Identifies the task. All activations of one task have the same history length."""

    def activate(self, act: WorkflowActivation) -> WorkflowActivationCompletion:
        """Run workflow code. Answer delayed queries at the end of the task in which they arrived."""
        bound_activation(act)
        is_new_task = act.history_length != self._task_history_length
        if is_new_task or any(job.HasField("remove_from_cache") for job in act.jobs):
            self._delayed_queries, self._task_history_length = [], act.history_length
        if self._pending_local_activities and any(_is_query_in_task(job) for job in act.jobs):
            self._delayed_queries.extend(act.jobs)  # an activation with queries has no other jobs
            empty = WorkflowActivationCompletion()
            empty.successful.SetInParent()
            return empty
        completion = super().activate(act)
        self._update_pending(act, completion)
        is_task_over = not self._pending_local_activities and not _may_have_more_jobs(completion)
        if self._delayed_queries and is_task_over:
            completion.successful.commands.extend(self._query_answers(act))
        return completion

    def _update_pending(self, act: WorkflowActivation, completion: WorkflowActivationCompletion) -> None:
        commands = completion.successful.commands
        self._pending_local_activities |= {
            command.schedule_local_activity.seq for command in commands if command.HasField("schedule_local_activity")
        }
        self._pending_local_activities -= {
            job.resolve_activity.seq for job in act.jobs if job.resolve_activity.is_local
        }
        self._pending_local_activities -= {  # workflow code no longer waits for these
            command.request_cancel_local_activity.seq
            for command in commands
            if command.HasField("request_cancel_local_activity")
        }

    def _query_answers(self, act: WorkflowActivation) -> Iterable[WorkflowCommand]:
        queries = WorkflowActivation()
        queries.CopyFrom(act)
        queries.is_replaying = True  # the SDK sets this for every query
        del queries.jobs[:]
        queries.jobs.extend(self._delayed_queries)
        self._delayed_queries = []
        return super().activate(queries).successful.commands


def _is_query_in_task(job: WorkflowActivationJob) -> bool:
    return job.HasField("query_workflow") and job.query_workflow.query_id != _DIRECT_QUERY_ID


def _may_have_more_jobs(completion: WorkflowActivationCompletion) -> bool:
    """Return whether the SDK may send more jobs in this task, for example after a cancellation."""
    if not completion.HasField("successful"):
        return True
    names = (command.WhichOneof("variant") or "" for command in completion.successful.commands)
    return any("cancel" in name and name != "cancel_timer" for name in names)


def our_runner() -> WorkflowRunner:
    """Return the runner of our workflows, for the `unsandboxed_workflow_runner` of a worker or a replayer."""
    return PatientRunner(UnsandboxedWorkflowRunner())


class SharedRunner(WrappedRunner):
    """Runs our workflows with our runner, and an application's unsandboxed workflows with the application's runner."""

    def __init__(self, ours: WorkflowRunner, theirs: WorkflowRunner) -> None:
        super().__init__(theirs)
        self._ours = ours

    def create_instance(self, det: WorkflowInstanceDetails) -> WorkflowInstance:
        if det.defn.cls not in WORKFLOWS:
            return super().create_instance(det)
        # Our workflows define which errors fail them. An application's own list must not change that.
        return self._ours.create_instance(replace(det, worker_level_failure_exception_types=()))


def sandbox_for_others(runner: WorkflowRunner) -> WorkflowRunner:
    """Return an application's runner. A sandbox then shares our modules, so that `run_agent` returns our types."""
    if not isinstance(runner, SandboxedWorkflowRunner):
        return runner
    return replace(runner, restrictions=runner.restrictions.with_passthrough_modules("orga"))


class UnpinningRunner(WrappedRunner):
    """Unpins a run in its last workflow task before it continues as new.

    The continue-as-new command requests that, too (`initial_versioning_behavior`), but servers up to at least 1.29
    ignore it, and a pinned run would keep its version for ever. The settings workflow is never pinned.
    """

    def create_instance(self, det: WorkflowInstanceDetails) -> WorkflowInstance:
        return _UnpinningInstance(super().create_instance(det), is_pinned=det.info.workflow_type != SETTINGS_WORKFLOW)


class _UnpinningInstance(WrappedInstance):
    def __init__(self, instance: WorkflowInstance, *, is_pinned: bool) -> None:
        super().__init__(instance)
        self._is_pinned = is_pinned

    def activate(self, act: WorkflowActivation) -> WorkflowActivationCompletion:
        completion = super().activate(act)
        commands = completion.successful.commands
        continues_as_new = any(command.HasField("continue_as_new_workflow_execution") for command in commands)
        if continues_as_new or not self._is_pinned:
            completion.successful.versioning_behavior = VersioningBehavior.AUTO_UPGRADE.value  # pyright: ignore
        return completion
