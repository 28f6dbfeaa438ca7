"""Which modules a workflow shares with its worker."""

from temporalio.worker.workflow_sandbox import SandboxedWorkflowRunner, SandboxRestrictions

PASSED_THROUGH = (
    "workflows.types",
    "pydantic_core",
    "opentelemetry",
)
"""Values and third-party packages. Never `workflows.decisions` or the workflow files: those are made anew for each run,
so that no run can leave anything behind for another."""


def workflow_runner() -> SandboxedWorkflowRunner:
    """Return the sandbox that every worker and replayer uses."""
    return SandboxedWorkflowRunner(restrictions=SandboxRestrictions.default.with_passthrough_modules(*PASSED_THROUGH))
