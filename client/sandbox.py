"""Which modules a workflow shares with its worker, and how rarely its sandbox is entered."""

from functools import lru_cache
from typing import Any

from temporalio.converter import SerializationContext, StorageDriverStoreContext
from temporalio.worker import WorkflowInstance, WorkflowInstanceDetails
from temporalio.worker.workflow_sandbox import SandboxedWorkflowRunner, SandboxRestrictions
from temporalio.workflow import Info

PASSED_THROUGH = (
    "workflows.types",
    "pydantic_core",
    "opentelemetry",
)
"""Values and third-party packages. Never `workflows.decisions` or the workflow files: those are made anew for each run,
so that no run can leave anything behind for another."""

REMEMBERED = 64


def workflow_runner() -> SandboxedWorkflowRunner:
    """Return the sandbox that every worker and replayer uses."""
    return _Runner(restrictions=SandboxRestrictions.default.with_passthrough_modules(*PASSED_THROUGH))


class _Runner(SandboxedWorkflowRunner):
    """The SDK's sandbox, asked once for what the SDK asks many times.

    It wants the serialization context six times for each payload; each question enters the sandbox, which without this
    takes a third of a replay's time.
    """

    def create_instance(self, det: WorkflowInstanceDetails) -> WorkflowInstance:
        """Create the instance in a sandbox of its own."""
        return _Instance(super().create_instance(det))


class _Instance(WorkflowInstance):
    """Remembers the contexts of the latest commands: a command keeps its context as long as anyone asks for it."""

    def __init__(self, sandboxed: WorkflowInstance) -> None:
        self._sandboxed = sandboxed
        self._serialization = lru_cache(REMEMBERED)(sandboxed.get_serialization_context)
        self._storage = lru_cache(REMEMBERED)(sandboxed.get_external_store_context)

    def activate(self, act: Any) -> Any:
        return self._sandboxed.activate(act)

    def get_serialization_context(self, command_info: Any) -> SerializationContext | None:
        return self._serialization(command_info)

    def get_external_store_context(self, command_info: Any) -> StorageDriverStoreContext:
        return self._storage(command_info)

    def get_info(self) -> Info:
        return self._sandboxed.get_info()

    def get_thread_id(self) -> int | None:
        return self._sandboxed.get_thread_id()
