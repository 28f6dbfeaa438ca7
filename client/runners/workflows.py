"""Our workflows, and their runners.

They run outside the SDK's sandbox (`sandboxed=False`), because a sandbox for each run costs more than most runs do.
Two tests replace it: no module of workflow code keeps state, and all recorded histories replay in the sandbox.
"""

from dataclasses import replace
from typing import Any

from temporalio.worker import UnsandboxedWorkflowRunner, WorkflowInstance, WorkflowInstanceDetails, WorkflowRunner
from temporalio.worker.workflow_sandbox import SandboxedWorkflowRunner

from orga.client.runners.patient import PatientRunner
from orga.client.runners.wrapped import WrappedRunner
from orga.workflows.agent import AgentWorkflow
from orga.workflows.goal import GoalWorkflow
from orga.workflows.session import SessionWorkflow

WORKFLOWS: list[type[Any]] = [AgentWorkflow, GoalWorkflow, SessionWorkflow]
"""Every worker runs these, and a history of any run replays with them."""


def our_runner() -> WorkflowRunner:
    """Return the runner of our workflows: a worker's `unsandboxed_workflow_runner`."""
    return PatientRunner(UnsandboxedWorkflowRunner())


class SharedRunner(WrappedRunner):
    """Runs our workflows with our runner, and an application's own unsandboxed workflows with the application's."""

    def __init__(self, ours: WorkflowRunner, theirs: WorkflowRunner) -> None:
        super().__init__(theirs)
        self._ours = ours

    def create_instance(self, det: WorkflowInstanceDetails) -> WorkflowInstance:
        if det.defn.cls not in WORKFLOWS:
            return super().create_instance(det)
        # Our workflows name the errors that fail them. An application's choice of such errors must not reach them.
        return self._ours.create_instance(replace(det, worker_level_failure_exception_types=()))


def sandbox_for_others(runner: WorkflowRunner) -> WorkflowRunner:
    """Return an application's runner. A sandbox then shares our modules, so that `run_agent` returns our types."""
    if not isinstance(runner, SandboxedWorkflowRunner):
        return runner
    return replace(runner, restrictions=runner.restrictions.with_passthrough_modules("orga"))
