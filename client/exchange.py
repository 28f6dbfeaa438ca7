"""What is said to a run and what it answers: signals, queries and updates, their failures as ours."""

import asyncio
from datetime import timedelta
from typing import Any

from temporalio.client import Client, WorkflowExecutionDescription, WorkflowExecutionStatus, WorkflowHandle
from temporalio.client import WorkflowQueryFailedError as QueryFailed
from temporalio.client import WorkflowUpdateFailedError as UpdateFailed
from temporalio.client import WorkflowUpdateRPCTimeoutOrCancelledError as UpdateUnanswered
from temporalio.exceptions import ApplicationError
from temporalio.service import RPCError, RPCStatusCode

from client.errors import NoAnswer, NotTakenYet, OrgaError, Refused, RunEnded, RunNotFound
from client.pollers import pollers

ANSWER_TIMEOUT = timedelta(seconds=10)

_RECORDING_LOOKS, _BETWEEN_LOOKS_S = 100, 0.05
"""A workflow task takes milliseconds, but for one in which an embedded policy engine is slow."""

_UNANSWERED = {
    RPCStatusCode.DEADLINE_EXCEEDED,
    RPCStatusCode.CANCELLED,
    RPCStatusCode.INTERNAL,
    RPCStatusCode.FAILED_PRECONDITION,
}


class Exchange:
    """Talks to one run, through all its continue-as-new runs."""

    def __init__(self, client: Client, workflow_id: str) -> None:
        self._client = client
        self._id = workflow_id
        self.workflow: WorkflowHandle[Any, Any] = client.get_workflow_handle(workflow_id)

    async def describe(self) -> WorkflowExecutionDescription:
        """Return what the server says of the run."""
        try:
            return await self.workflow.describe()
        except RPCError as error:
            raise translated(error, self._id) from error

    async def signal(self, name: str, *arguments: str) -> None:
        """Send a signal; a run without a worker takes it in when one comes."""
        try:
            await self.workflow.signal(name, args=list(arguments))
        except RPCError as error:
            raise self._not_delivered(error) from error

    async def query(self, name: str) -> Any:
        """Ask; only a worker can answer."""
        try:
            return await self.workflow.query(name, rpc_timeout=ANSWER_TIMEOUT)
        except QueryFailed as error:
            raise OrgaError(f"{self._id} cannot answer {name!r}: {error}") from error
        except RPCError as error:
            if error.status in _UNANSWERED:
                raise NoAnswer((await self.describe()).task_queue) from None
            raise translated(error, self._id) from error

    async def update(self, name: str, argument: Any) -> Any:
        """Send an update. Without a worker it is not sent: it would take effect whenever one comes.

        Raises:
            Refused: The run's validator turned it away.
            RunEnded: The run is not live.
            NoAnswer: No worker polls; `NotTakenYet` when one did a moment ago.
        """
        task_queue = await self.polled()
        await self._on_record()
        try:
            return await self.workflow.execute_update(name, argument, rpc_timeout=ANSWER_TIMEOUT)  # pyright: ignore[reportUnknownMemberType]
        except UpdateFailed as error:
            raise Refused(_why(error)) from None
        except UpdateUnanswered:
            raise NotTakenYet(task_queue) from None
        except RPCError as error:
            raise self._not_delivered(error) from error

    async def polled(self) -> str:
        """Return the task queue of the run.

        Raises:
            RunEnded: It is not live.
            NoAnswer: No worker polls the task queue.
        """
        described = await self.describe()
        if described.status != WorkflowExecutionStatus.RUNNING:
            raise RunEnded(self._id)
        if not await pollers(self._client, described.task_queue):
            raise NoAnswer(described.task_queue)
        return described.task_queue

    async def _on_record(self) -> None:
        """Wait a moment for a workflow task under way.

        After a lost cache a query may show what no task has put on record yet (a question, say). An update that such a
        task took in would come before it in every replay, which then fails.
        """
        for _ in range(_RECORDING_LOOKS):
            if not (await self.describe()).raw_description.HasField("pending_workflow_task"):
                return
            await asyncio.sleep(_BETWEEN_LOOKS_S)

    def _not_delivered(self, error: RPCError) -> OrgaError:
        is_over = error.status == RPCStatusCode.NOT_FOUND and "already completed" in error.message
        return RunEnded(self._id) if is_over else translated(error, self._id)


def _why(error: UpdateFailed) -> str:
    """Return the validator's own words, without the type of its exception."""
    return error.cause.message if isinstance(error.cause, ApplicationError) else str(error.cause)


def translated(error: RPCError, workflow_id: str) -> OrgaError:
    """Return what a user is told when the server does not do as it was asked."""
    if error.status == RPCStatusCode.NOT_FOUND:
        return RunNotFound(workflow_id)
    if error.status == RPCStatusCode.INVALID_ARGUMENT:
        return OrgaError(f"the server refuses {workflow_id!r}: {error.message}")
    return OrgaError(f"the Temporal server answered {error.status.name.lower()}: {error.message}; see `orga doctor`")
