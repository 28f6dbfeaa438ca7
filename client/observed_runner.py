"""A workflow runner that shows what goes into the workflow and what comes out of it, task by task."""

from collections.abc import Callable
from typing import Any

from temporalio.bridge.proto.workflow_activation import WorkflowActivation
from temporalio.bridge.proto.workflow_completion import WorkflowActivationCompletion
from temporalio.converter import StorageDriverStoreContext
from temporalio.worker import WorkflowInstance, WorkflowInstanceDetails, WorkflowRunner
from temporalio.workflow import Info

Observer = Callable[[WorkflowActivation, WorkflowActivationCompletion], None]


class ObservedRunner(WorkflowRunner):
    """Leaves the work to another runner."""

    def __init__(self, runner: WorkflowRunner, observer: Observer) -> None:
        self._runner = runner
        self._observer = observer

    def prepare_workflow(self, defn: Any) -> None:
        """Let the other runner prepare it."""
        self._runner.prepare_workflow(defn)

    def create_instance(self, det: WorkflowInstanceDetails) -> WorkflowInstance:
        """Create the instance and look at it from now on."""
        return _Observed(self._runner.create_instance(det), self._observer)


class _Observed(WorkflowInstance):
    def __init__(self, instance: WorkflowInstance, observer: Observer) -> None:
        self._instance = instance
        self._observer = observer

    def activate(self, act: WorkflowActivation) -> WorkflowActivationCompletion:
        completion = self._instance.activate(act)
        self._observer(act, completion)
        return completion

    def get_serialization_context(self, command_info: Any) -> Any:
        return self._instance.get_serialization_context(command_info)

    def get_external_store_context(self, command_info: Any) -> StorageDriverStoreContext:
        return self._instance.get_external_store_context(command_info)

    def get_info(self) -> Info:
        return self._instance.get_info()

    def get_thread_id(self) -> int | None:
        return self._instance.get_thread_id()
