"""Workers of several deployment versions on one task queue, and which of them completed which tasks."""

import asyncio
import uuid
from dataclasses import dataclass

from temporalio.api.enums.v1 import EventType
from temporalio.api.workflowservice.v1 import SetWorkerDeploymentCurrentVersionRequest
from temporalio.client import Client, WorkflowHistory
from temporalio.common import WorkerDeploymentVersion
from temporalio.service import RPCError, RPCStatusCode

POLL_S = 0.05
TIMEOUT_S = 30.0


@dataclass(frozen=True)
class Deployment:
    """A separate deployment."""

    client: Client
    name: str

    def version(self, build_id: str) -> WorkerDeploymentVersion:
        """Return one of its versions."""
        return WorkerDeploymentVersion(self.name, build_id)

    async def make_current(self, build_id: str) -> None:
        """Send new runs to a version, once its worker has been seen."""
        request = SetWorkerDeploymentCurrentVersionRequest(
            namespace=self.client.namespace, deployment_name=self.name, build_id=build_id
        )
        async with asyncio.timeout(TIMEOUT_S):
            while not await self._is_taken(request):
                await asyncio.sleep(POLL_S)

    async def _is_taken(self, request: SetWorkerDeploymentCurrentVersionRequest) -> bool:
        try:
            await self.client.workflow_service.set_worker_deployment_current_version(request)
        except RPCError as error:
            if error.status not in {RPCStatusCode.NOT_FOUND, RPCStatusCode.FAILED_PRECONDITION}:
                raise
            return False
        return True


def a_deployment(client: Client) -> Deployment:
    """Return a deployment that has no version yet."""
    return Deployment(client, f"test-{uuid.uuid4()}")


def builds_of(history: WorkflowHistory) -> set[str]:
    """Return the builds that completed the run's workflow tasks, "" for workers without a version."""
    completed = EventType.EVENT_TYPE_WORKFLOW_TASK_COMPLETED
    tasks = [e.workflow_task_completed_event_attributes for e in history.events if e.event_type == completed]
    return {task.deployment_version.build_id for task in tasks}
