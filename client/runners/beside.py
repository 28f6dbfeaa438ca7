"""A runner for a worker with workflows of an application beside ours: each kind runs in a sandbox of its own."""

from dataclasses import replace
from typing import Any

from temporalio.worker import WorkflowInstance, WorkflowInstanceDetails, WorkflowRunner
from temporalio.worker.workflow_sandbox import SandboxedWorkflowRunner

from orga.client.runners.kinds import WORKFLOWS
from orga.client.runners.sandbox import PASSED_THROUGH
from orga.client.runners.wrapped import WrappedRunner

PASSED_TO_OTHERS = (*PASSED_THROUGH, "orga.client")
"""An application's workflow may stand in the file that makes its worker. Workflow code of ours is never among them."""


class BesideRunner(WrappedRunner):
    """Runs our workflows as ever, and leaves all others to the runner that the application has."""

    def __init__(self, ours: WorkflowRunner, others: WorkflowRunner) -> None:
        super().__init__(_passing_through(others))
        self._ours = ours

    def prepare_workflow(self, defn: Any) -> None:
        """Let the one whose workflow it is prepare it."""
        if defn.cls in WORKFLOWS:
            self._ours.prepare_workflow(defn)
        else:
            super().prepare_workflow(defn)

    def create_instance(self, det: WorkflowInstanceDetails) -> WorkflowInstance:
        """Let the one whose workflow it is create it. What fails a workflow of ours is for us to say."""
        if det.defn.cls in WORKFLOWS:
            return self._ours.create_instance(replace(det, worker_level_failure_exception_types=()))
        return super().create_instance(det)


def _passing_through(runner: WorkflowRunner) -> WorkflowRunner:
    """Return the application's runner; in a sandbox our values are those of the worker, not made anew for each run."""
    if not isinstance(runner, SandboxedWorkflowRunner):
        return runner
    return replace(runner, restrictions=runner.restrictions.with_passthrough_modules(*PASSED_TO_OTHERS))
