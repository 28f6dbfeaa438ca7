"""Which modules a workflow shares with its worker, and how rarely its sandbox is entered."""

from dataclasses import dataclass, field
from typing import Any

from temporalio.converter import DataConverter, StorageDriverStoreContext, WithSerializationContext
from temporalio.worker import WorkflowInstance, WorkflowInstanceDetails
from temporalio.worker.workflow_sandbox import SandboxedWorkflowRunner, SandboxRestrictions

from orga.client.errors import OrgaError
from orga.client.history.converter import data_converter
from orga.client.runners.wrapped import WrappedInstance
from orga.own_code import foreign, pin
from orga.workflows.types.definition import knows_sdk

PASSED_THROUGH = (
    "orga.workflows.types",
    "orga.activities",
    "pydantic_core",
    "opentelemetry",
    "rapidfuzz",
    "minijinja",
)
"""Values and third-party packages. Never `orga.workflows.decisions` or the workflow files: those are made anew for
each run, so that no run can leave anything behind for another."""


def workflow_runner(converter: DataConverter = data_converter) -> SandboxedWorkflowRunner:
    """Return the sandbox that every worker and replayer uses, for the converter that it uses.

    What it imports anew for each run is our code as this process first had it, whatever `sys.path` and our files say.

    Raises:
        OrgaError: Modules of another program bear our names here.
    """
    pin()
    if strangers := foreign():
        raise OrgaError(f"these modules are not orga's: {', '.join(strangers)}; start workers with `orga worker`")
    asks = converter.external_storage is not None or isinstance(converter.payload_codec, WithSerializationContext)
    restrictions = SandboxRestrictions.default.with_passthrough_modules(*PASSED_THROUGH)
    return _Runner(restrictions=restrictions, is_asked_for_contexts=asks)


@dataclass(frozen=True)
class _Runner(SandboxedWorkflowRunner):
    """The SDK's sandbox, left alone while payloads are converted.

    The SDK asks it for the context of each payload, six times, although only a codec that depends on contexts or an
    external storage would use them. That takes a third of a replay's time.
    """

    is_asked_for_contexts: bool = False
    _passed: dict[type[Any], Any] = field(default_factory=dict[type[Any], Any], compare=False, repr=False)

    def create_instance(self, det: WorkflowInstanceDetails) -> WorkflowInstance:
        """Create the instance in a sandbox of its own."""
        instance = self._light_instance(det) if knows_sdk() else super().create_instance(det)
        return instance if self.is_asked_for_contexts else _WithoutContexts(instance)

    def _light_instance(self, det: WorkflowInstanceDetails) -> WorkflowInstance:
        from orga.client.runners.light import LightInstance

        return LightInstance(det, self.runner_class, self.restrictions, self._passed)


class _WithoutContexts(WrappedInstance):
    """A sandboxed instance whose payloads have no context."""

    def get_serialization_context(self, command_info: Any) -> None:
        return None

    def get_external_store_context(self, command_info: Any) -> StorageDriverStoreContext:
        return StorageDriverStoreContext(target=None)
