"""A workflow runner that shows what goes into the workflow and what comes out of it, task by task."""

from collections.abc import Callable

from temporalio.bridge.proto.workflow_activation import WorkflowActivation
from temporalio.bridge.proto.workflow_completion import WorkflowActivationCompletion
from temporalio.worker import WorkflowInstance, WorkflowInstanceDetails, WorkflowRunner

from orga.client.history.bounded_arguments import bound
from orga.client.runners.wrapped import WrappedInstance, WrappedRunner

REPLAY_BUILD = "replay"
"""Of a replayer: without one the SDK reads all modules from disk, for two seconds in which nothing else moves."""

Observer = Callable[[WorkflowActivation, WorkflowActivationCompletion], None]


class ObservedRunner(WrappedRunner):
    """Leaves the work to another runner."""

    def __init__(self, runner: WorkflowRunner, observer: Observer) -> None:
        super().__init__(runner)
        self._observer = observer

    def create_instance(self, det: WorkflowInstanceDetails) -> WorkflowInstance:
        """Create the instance and look at it from now on."""
        return _Observed(super().create_instance(det), self._observer)


class _Observed(WrappedInstance):
    def __init__(self, instance: WorkflowInstance, observer: Observer) -> None:
        super().__init__(instance)
        self._observer = observer

    def activate(self, act: WorkflowActivation) -> WorkflowActivationCompletion:
        bound(act)
        completion = super().activate(act)
        self._observer(act, completion)
        return completion
