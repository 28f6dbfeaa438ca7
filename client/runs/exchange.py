"""Signals, queries and updates to a run. Failures become `OrgaError`s, and a slow query is asked a second time."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any, TypeVar

from pydantic_core import to_json
from temporalio.client import Client, WorkflowExecutionDescription, WorkflowExecutionStatus, WorkflowHandle
from temporalio.client import WorkflowQueryFailedError as QueryFailed
from temporalio.client import WorkflowUpdateFailedError as UpdateFailed
from temporalio.client import WorkflowUpdateRPCTimeoutOrCancelledError as UpdateUnanswered
from temporalio.exceptions import ApplicationError
from temporalio.service import RPCError, RPCStatusCode

from orga.client.config.workplace import recorded_workplace, worker_command
from orga.client.errors import (
    REFUSALS,
    NoAnswer,
    NotTakenYet,
    OrgaError,
    Refused,
    RunEnded,
    RunNotFound,
    ServerLost,
    TaskFails,
    TooLong,
)
from orga.client.history.values import MAX_UPDATE_BYTES
from orga.client.runs.failing_tasks import failing_task
from orga.client.server.pollers import may_be_polled
from orga.client.server.server_errors import error_reason, is_lost
from orga.workflows.decisions.control.interventions import MAX_SIGNAL_BYTES, sender_of
from orga.workflows.types.record import InvalidInput

T = TypeVar("T")

HEDGE_AFTER = timedelta(seconds=3)
"""A worker with the run in its cache answers within milliseconds, one that must replay it within seconds."""


async def first_answer(
    ask: Callable[[timedelta], Awaitable[T]], within: timedelta, after: timedelta = HEDGE_AFTER
) -> T:
    """Return the first answer to a question that is asked a second time after a while.

    `ask` gives up after the time that it is given, and both requests together after `within`. If both fail, the first
    one's exception is raised.
    """
    asked = [asyncio.ensure_future(ask(within))]
    try:
        await asyncio.wait(asked, timeout=after.total_seconds())
        if not asked[0].done():
            asked.append(asyncio.ensure_future(ask(within - after)))
        for answer in asyncio.as_completed(asked):
            try:
                return await answer
            except Exception:
                continue
        return await asked[0]
    finally:
        for question in asked:
            question.cancel()


ANSWER_TIMEOUT = timedelta(seconds=10)

_RECORDING_LOOKS, _BETWEEN_LOOKS_S = 100, 0.05
"""A workflow task takes milliseconds, unless an embedded policy engine is slow."""

UNPROCESSED = "UnprocessedUpdate"
"""The server's error for an update that its workflow task left out (temporalio 1.35). A worker that has just taken a
run over does that if somebody queries the status meanwhile. No workflow has seen the update, so it is sent again."""

_UNANSWERED_STATUSES = {
    RPCStatusCode.DEADLINE_EXCEEDED,
    RPCStatusCode.CANCELLED,
    RPCStatusCode.INTERNAL,
    RPCStatusCode.FAILED_PRECONDITION,
}


class Exchange:
    """Sends messages to one run, across continue-as-new."""

    def __init__(self, client: Client, workflow_id: str) -> None:
        self._client = client
        self._id = workflow_id
        self.workflow: WorkflowHandle[Any, Any] = client.get_workflow_handle(workflow_id)

    async def describe(self) -> WorkflowExecutionDescription:
        """Return the server's description of the run."""
        try:
            return await self.workflow.describe()
        except RPCError as error:
            raise user_error(error, self._id) from error

    async def signal(self, name: str, *arguments: str | dict[str, Any]) -> None:
        """Send a signal. A run without a worker receives it when one starts. One that is too long is not sent."""
        for argument in arguments:
            check_length(argument if isinstance(argument, str) else to_json(argument).decode())
        try:
            await self.workflow.signal(name, args=list(arguments))
        except RPCError as error:
            raise self._delivery_error(error) from error

    async def query(self, name: str, *arguments: Any) -> Any:
        """Send a query. Only a worker can answer it."""
        try:
            return await first_answer(
                lambda within: self.workflow.query(name, args=arguments, rpc_timeout=within), ANSWER_TIMEOUT
            )
        except QueryFailed as error:
            if isinstance(failing := await self._no_answer_error(), TaskFails):
                raise failing from None
            raise OrgaError(f"{self._id} cannot answer {name!r}: {error}") from error
        except RPCError as error:
            if error.status in _UNANSWERED_STATUSES:
                raise await self._no_answer_error() from None
            raise user_error(error, self._id) from error

    async def update(
        self, name: str, argument: Any, within: timedelta = ANSWER_TIMEOUT, *, update_id: str | None = None
    ) -> Any:
        """Send an update, but only if a worker is running. Otherwise it would take effect whenever one starts.

        An update that was accepted under the sender's id is not sent again, and its answer is returned.

        Raises:
            Refused: The run's validator refused it.
            RunEnded: The run has ended.
            NoAnswer: No worker polls. Its subclass `NotTakenYet`: one did a moment ago, or the server was lost
                meanwhile.
            ServerLost: The server was lost before, and nothing was sent.
            TooLong: No run accepts such a long update. Nothing was sent.
        """
        if (size := len(to_json(argument))) > MAX_UPDATE_BYTES:
            raise TooLong(size, MAX_UPDATE_BYTES)
        await self.require_worker()
        await self._wait_for_record()
        try:
            return await self.ask_update(name, argument, within, update_id=update_id)
        except UpdateFailed as error:
            if isinstance(error.cause, ApplicationError) and error.cause.type == UNPROCESSED:
                return await self.update(name, argument, within, update_id=update_id)
            raise refusal_error(error) from None
        except UpdateUnanswered:
            raise await self._not_taken_error() from None
        except RPCError as error:
            if isinstance(refused := self._delivery_error(error), ServerLost):
                raise _unknown_effect_error(refused) from error
            raise refused from error

    async def ask_update(self, name: str, argument: Any, within: timedelta, *, update_id: str | None = None) -> Any:
        """Send an update without looking for a worker, and return its answer.

        Errors are the SDK's own, except that a cancellation remains a cancellation.
        """
        try:
            return await self.workflow.execute_update(name, argument, id=update_id, rpc_timeout=within)  # pyright: ignore[reportUnknownMemberType]
        except UpdateUnanswered as error:
            if isinstance(error.__cause__, asyncio.CancelledError):
                raise asyncio.CancelledError from None
            raise

    async def is_accepted(self, update_id: str) -> bool:
        """Return whether the run, live or ended, has carried out an update with this id."""
        try:
            await self.workflow.get_update_handle(update_id).result(rpc_timeout=ANSWER_TIMEOUT)
        except (UpdateFailed, UpdateUnanswered, RPCError):
            return False
        return True

    async def require_worker(self) -> None:
        """Raise RunEnded or NoAnswer if no worker could accept what is sent. TaskFails: none can continue the run."""
        described = await self.describe()
        if described.status != WorkflowExecutionStatus.RUNNING:
            raise RunEnded(self._id)
        if not await may_be_polled(self._client, described.task_queue):
            raise NoAnswer(described.task_queue, worker_command(await recorded_workplace(described)))
        if failing := await self._failing_task(described):
            raise failing

    async def _not_taken_error(self) -> NotTakenYet:
        """Return the error for an update that nobody has answered."""
        try:
            described = await self.describe()
        except ServerLost as lost:
            return _unknown_effect_error(lost)
        return NotTakenYet(
            f"no worker on task queue {described.task_queue!r} has answered, and it may take effect when one comes",
            f"start one with: {worker_command(await recorded_workplace(described))}",
        )

    async def _no_answer_error(self) -> NoAnswer:
        """Return the reason why nobody answers."""
        described = await self.describe()
        if failing := await self._failing_task(described):
            return failing
        return NoAnswer(described.task_queue, worker_command(await recorded_workplace(described)))

    async def _failing_task(self, described: WorkflowExecutionDescription) -> TaskFails | None:
        failing = await failing_task(self._client, described)
        return failing and TaskFails(self._id, failing.problem_line, failing.remedy)

    async def _wait_for_record(self) -> None:
        """Wait briefly while a workflow task is pending.

        After a lost cache, a query may show something that no task has recorded yet, such as a question. An update that
        such a task accepted would precede it in every replay, and the replay would fail.
        """
        for _ in range(_RECORDING_LOOKS):
            if not (await self.describe()).raw_description.HasField("pending_workflow_task"):
                return
            await asyncio.sleep(_BETWEEN_LOOKS_S)

    def _delivery_error(self, error: RPCError) -> OrgaError:
        return RunEnded(self._id) if is_ended_error(error) else user_error(error, self._id)


_ENDED_MESSAGES = ("already completed", "aborted by closing workflow")
"""Parts of the server's message about a run that has ended or is just ending. The status alone does not show it."""


def is_ended_error(error: RPCError) -> bool:
    """Return whether the server reports that the run has ended or is ending."""
    return error.status == RPCStatusCode.NOT_FOUND and any(words in error.message for words in _ENDED_MESSAGES)


def refusal_error(error: UpdateFailed) -> Refused:
    """Return the error for an update that a run refused, by the run's name for the refusal."""
    cause = error.cause
    if not isinstance(cause, ApplicationError):
        return Refused(str(cause))
    kind = cause.type or ""
    refused = REFUSALS.get(kind, Refused)(cause.message)
    refused.kind, refused.details = kind, cause.details
    return refused


def sender_fields(by: str, intervention_id: str = "") -> dict[str, str]:
    """Return what identifies an intervention and its sender, as a signal has it. Empty without both."""
    given = {name: value for name, value in (("id", intervention_id), ("by", by)) if value}
    found = sender_of(given)
    if intervention_id and "id" not in found:
        raise InvalidInput("intervention_id: take at most 64 printable ASCII characters, without spaces")
    return found


def check_length(text: str) -> None:
    """Raise TooLong for a text of which a run would use only a part."""
    size = len(text.encode("utf-8", "replace"))
    if size > MAX_SIGNAL_BYTES:
        raise TooLong(size, MAX_SIGNAL_BYTES)


def _unknown_effect_error(lost: ServerLost) -> NotTakenYet:
    return NotTakenYet(f"{lost.symptom}, and it may have taken effect", "see `orga doctor`")


def user_error(error: RPCError, workflow_id: str) -> OrgaError:
    """Return the error to show a user after the server failed a request."""
    if error.status == RPCStatusCode.NOT_FOUND:
        return RunNotFound(workflow_id)
    if error.status == RPCStatusCode.INVALID_ARGUMENT:
        return OrgaError(f"the server refuses {workflow_id!r}: {error.message}")
    problem = f"the Temporal server answered {error.status.name.lower()}: {error_reason(error)}"
    return ServerLost(problem) if is_lost(error) else OrgaError(f"{problem}; see `orga doctor`")
