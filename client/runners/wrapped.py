"""Wrappers around the SDK's workflow runners and their instances."""

from collections.abc import Callable
from threading import Lock
from typing import Any

from temporalio.bridge.proto.workflow_activation import WorkflowActivation
from temporalio.bridge.proto.workflow_completion import WorkflowActivationCompletion
from temporalio.converter import StorageDriverStoreContext
from temporalio.worker import WorkflowInstance, WorkflowInstanceDetails, WorkflowRunner
from temporalio.workflow import Info

from orga.client.history.bounded_arguments import bound_activation

REPLAY_BUILD = "replay"
"""Build id of replayers. Without one the SDK reads all modules from disk to make one, which blocks for two seconds."""

Observer = Callable[[WorkflowActivation, WorkflowActivationCompletion], None]


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

    The SDK (temporalio 1.35) evicts a run whose activation took longer than its two seconds while the activation still
    runs in another thread. The two threads would take each other's steps, and no later eviction would succeed.
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
