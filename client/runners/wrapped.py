"""What stands around the SDK's workflow runner, or around one of its instances, and leaves the rest to it."""

from threading import Lock
from typing import Any

from temporalio.bridge.proto.workflow_activation import WorkflowActivation
from temporalio.bridge.proto.workflow_completion import WorkflowActivationCompletion
from temporalio.converter import StorageDriverStoreContext
from temporalio.worker import WorkflowInstance, WorkflowInstanceDetails, WorkflowRunner
from temporalio.workflow import Info


class WrappedRunner(WorkflowRunner):
    """Leaves the work to another runner."""

    def __init__(self, runner: WorkflowRunner) -> None:
        self._runner = runner

    def prepare_workflow(self, defn: Any) -> None:
        """Let the other runner prepare it."""
        self._runner.prepare_workflow(defn)

    def set_worker_level_failure_exception_types(self, types: Any) -> None:
        """Tell the other runner."""
        self._runner.set_worker_level_failure_exception_types(types)

    def create_instance(self, det: WorkflowInstanceDetails) -> WorkflowInstance:
        """Let the other runner create it."""
        return self._runner.create_instance(det)


class WrappedInstance(WorkflowInstance):
    """One run in the cache of a worker: everything is left to another instance, one activation at a time.

    The SDK (temporalio 1.35) evicts a run whose activation took longer than its two seconds while that one still goes
    on in another thread. The two take each other's steps, no eviction succeeds from then on, and the run stands still.
    """

    def __init__(self, instance: WorkflowInstance) -> None:
        self._instance = instance
        self._active = Lock()

    def activate(self, act: WorkflowActivation) -> WorkflowActivationCompletion:
        """Let workflow code act, when it has come back from what it did before."""
        with self._active:
            return self._instance.activate(act)

    def get_serialization_context(self, command_info: Any) -> Any:
        """Return the other's."""
        return self._instance.get_serialization_context(command_info)

    def get_external_store_context(self, command_info: Any) -> StorageDriverStoreContext:
        """Return the other's."""
        return self._instance.get_external_store_context(command_info)

    def get_info(self) -> Info:
        """Return the other's."""
        return self._instance.get_info()

    def get_thread_id(self) -> int | None:
        """Return the other's."""
        return self._instance.get_thread_id()
