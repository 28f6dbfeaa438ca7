"""Agents from Python: start one, steer it, ask it, wait for it."""

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import uuid_utils
from temporalio.client import (
    Client,
    WorkflowExecutionDescription,
    WorkflowExecutionStatus,
    WorkflowFailureError,
    WorkflowHandle,
)
from temporalio.client import WorkflowQueryFailedError as QueryFailed
from temporalio.common import TypedSearchAttributes, WorkflowIDConflictPolicy, WorkflowIDReusePolicy
from temporalio.exceptions import TerminatedError, WorkflowAlreadyStartedError
from temporalio.service import RPCError, RPCStatusCode

from client.errors import NoAnswer, OrgaError, RunEnded, RunFailed, RunNotFound
from workflows.decisions.summaries import one_line
from workflows.types.input import AgentInput, parse_input
from workflows.types.names import AGENT_WORKFLOW, TASK_QUEUE
from workflows.types.result import AgentResult
from workflows.types.status import AgentStatus, ShownMessage

SUMMARY_CHARS = 150
QUERY_TIMEOUT = timedelta(seconds=10)

_UNANSWERED = {
    RPCStatusCode.DEADLINE_EXCEEDED,
    RPCStatusCode.CANCELLED,
    RPCStatusCode.INTERNAL,
    RPCStatusCode.FAILED_PRECONDITION,
}


class AgentHandle:
    """A run of an agent, live or ended."""

    def __init__(self, client: Client, workflow_id: str) -> None:
        """Stand for the run through all its continue-as-new runs, so it is bound to none of them."""
        self.id = workflow_id
        self._workflow: WorkflowHandle[Any, Any] = client.get_workflow_handle(workflow_id)

    async def steer(self, guidance: str) -> None:
        """Guide the next reasoning step. Guidance is queued, in order.

        Raises:
            RunNotFound: No run has this id.
            RunEnded: It takes no more signals.
        """
        await self._signal("steer", guidance)

    async def add_context(self, context: str) -> None:
        """Append to what the agent knows."""
        await self._signal("add_context", context)

    async def pause(self) -> None:
        """Stop before the next phase; clocks and budgets stand still."""
        await self._signal("pause")

    async def resume(self) -> None:
        """Go on after a pause."""
        await self._signal("resume")

    async def abort(self, why: str = "") -> None:
        """Cancel what is in flight and end with reason `aborted`."""
        await self._signal("abort", why)

    async def status(self) -> AgentStatus:
        """Return where the run stands.

        Raises:
            NoAnswer: No worker is there to answer.
        """
        return AgentStatus.model_validate(await self._query("status"))

    async def conversation(self) -> list[ShownMessage]:
        """Return the messages as the model would see them."""
        return [ShownMessage.model_validate(message) for message in await self._query("conversation")]

    async def result(self) -> AgentResult:
        """Wait for the ending; a run that is rewound meanwhile has another.

        Raises:
            RunFailed: Invalid input, a defect, or the run was terminated by an operator.
        """
        while True:
            try:
                return AgentResult.model_validate(await self._workflow.result())
            except WorkflowFailureError as error:
                if not await self._goes_on(error):
                    raise RunFailed(_cause(error)) from None
            except RPCError as error:
                raise _translated(error, self.id) from error

    async def describe(self) -> WorkflowExecutionDescription:
        """Return what the server says of the run, its activities in flight included."""
        try:
            return await self._workflow.describe()
        except RPCError as error:
            raise _translated(error, self.id) from error

    async def _goes_on(self, error: WorkflowFailureError) -> bool:
        """Return whether the run was reset: that terminates it, and begins another under its id at once."""
        is_terminated = isinstance(error.cause, TerminatedError)
        return is_terminated and (await self.describe()).status != WorkflowExecutionStatus.TERMINATED

    async def _signal(self, name: str, *arguments: str) -> None:
        try:
            await self._workflow.signal(name, args=list(arguments))
        except RPCError as error:
            if error.status == RPCStatusCode.NOT_FOUND and "already completed" in error.message:
                raise RunEnded(self.id) from None
            raise _translated(error, self.id) from error

    async def _query(self, name: str) -> Any:
        try:
            return await self._workflow.query(name, rpc_timeout=QUERY_TIMEOUT)
        except QueryFailed as error:
            raise OrgaError(f"{self.id} cannot answer {name!r}: {error}") from error
        except RPCError as error:
            if error.status in _UNANSWERED:
                raise NoAnswer((await self.describe()).task_queue) from None
            raise _translated(error, self.id) from error


async def start_agent(
    client: Client,
    agent_input: AgentInput | Mapping[str, Any] | str,
    *,
    workflow_id: str | None = None,
    task_queue: str = TASK_QUEUE,
    search_attributes: TypedSearchAttributes = TypedSearchAttributes.empty,
) -> AgentHandle:
    """Start a run and return its handle.

    Args:
        client: From `connect`.
        agent_input: The input of `AgentWorkflow`; a string is the task.
        workflow_id: `agent-<uuid7>` unless given.
        task_queue: Where the workers poll.
        search_attributes: Set from the start; the run adds its own.

    Raises:
        InvalidInput: Before anything is started, naming each bad key.
        OrgaError: A run with this id is live already.
    """
    given = {"task": agent_input} if isinstance(agent_input, str) else agent_input
    checked = parse_input(given if isinstance(given, AgentInput) else dict(given))
    workflow_id = workflow_id or f"agent-{uuid_utils.uuid7()}"
    try:
        handle = await client.start_workflow(
            AGENT_WORKFLOW,
            checked.model_dump(mode="json", exclude_unset=True),
            id=workflow_id,
            task_queue=task_queue,
            id_reuse_policy=WorkflowIDReusePolicy.ALLOW_DUPLICATE,
            id_conflict_policy=WorkflowIDConflictPolicy.FAIL,
            static_summary=one_line(checked.task, SUMMARY_CHARS),
            search_attributes=search_attributes,
        )
    except RPCError as error:
        raise _translated(error, workflow_id) from error
    except WorkflowAlreadyStartedError:
        raise OrgaError(f"run {workflow_id!r} is live already; attach to it, or choose another id") from None
    return AgentHandle(client, handle.id)


def _cause(error: WorkflowFailureError) -> str:
    return str(error.cause)


def _translated(error: RPCError, workflow_id: str) -> OrgaError:
    if error.status == RPCStatusCode.NOT_FOUND:
        return RunNotFound(workflow_id)
    if error.status == RPCStatusCode.INVALID_ARGUMENT:
        return OrgaError(f"the server refuses {workflow_id!r}: {error.message}")
    return OrgaError(f"the Temporal server answered {error.status.name.lower()}: {error.message}; see `orga doctor`")
