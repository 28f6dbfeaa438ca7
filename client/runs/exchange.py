"""Sends signals, queries and updates to a run. Failures become `OrgaError`s, and a slow query is sent a second time."""

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
from orga.client.history.values import MAX_UPDATE_BYTES, readable
from orga.client.runs.failing_tasks import failing_task
from orga.client.runs.needed_worker import needed_worker
from orga.client.server.server_errors import error_reason, is_lost
from orga.client.server.versions import may_be_served
from orga.workflows.decisions.control.interventions import MAX_SIGNAL_BYTES, sender_of
from orga.workflows.types.record import InvalidInput

T = TypeVar("T")

HEDGE_AFTER = timedelta(seconds=3)
"""Wait before a query is sent again. A worker answers in milliseconds, or in seconds if it must replay the run."""


async def first_answer(
    ask: Callable[[timedelta], Awaitable[T]], within: timedelta, after: timedelta = HEDGE_AFTER
) -> T:
    """Call `ask`, call it again if there is no answer after the time `after`, and return the answer that comes first.

    Each call gets the time that is left of `within`. If both fail, the exception of the first call is raised.
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
"""Checks for a pending workflow task, and seconds between them. With a slow embedded policy engine, a task is long."""

UNPROCESSED = "UnprocessedUpdate"
"""The server's error for an update that a workflow task left out (temporalio 1.35). This happens if somebody queries a
run while a worker is taking it over. No workflow has seen the update, so it is sent again."""

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
        """Send a signal, or raise TooLong. A run without a worker receives it when one starts."""
        for argument in arguments:
            check_length(argument if isinstance(argument, str) else to_json(argument).decode())
        try:
            await self.workflow.signal(name, args=list(arguments))
        except RPCError as error:
            raise self._delivery_error(error) from error

    async def query(self, name: str, *arguments: Any) -> Any:
        """Send a query. Only a worker can answer it. Raise UnreadableRun if this client cannot decode the answer."""
        try:
            answer = await first_answer(
                lambda within: self.workflow.query(name, args=arguments, rpc_timeout=within), ANSWER_TIMEOUT
            )
            return readable(answer)
        except QueryFailed as error:
            if failing := await self._failing_task(await self.describe()):
                raise failing from None
            raise OrgaError(f"{self._id} cannot answer {name!r}: {error}") from error
        except RPCError as error:
            if error.status in _UNANSWERED_STATUSES:
                raise await self._no_answer_error() from None
            raise user_error(error, self._id) from error

    async def update(
        self, name: str, argument: Any, within: timedelta = ANSWER_TIMEOUT, *, update_id: str | None = None
    ) -> Any:
        """Send an update if a worker is running. Without a worker, the update would take effect when one starts.

        If the run has accepted an update with this `update_id` before, the answer of that update is returned.

        Raises:
            Refused: The run's validator refused the update.
            RunEnded: The run has ended.
            NoAnswer: No worker polls, and nothing was sent.
            NotTakenYet: A `NoAnswer` after the update was sent, or the server was lost. It may still take effect.
            ServerLost: The server was lost before the update was sent.
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
            if f"Update handler for '{name}' expected but not found" in str(error.cause):
                kind = (await self.describe()).workflow_type
                raise Refused(f"{self._id!r} is a workflow of type {kind}, which has no update {name!r}") from None
            raise refusal_error(error) from None
        except UpdateUnanswered:
            raise await self._not_taken_error() from None
        except RPCError as error:
            problem = self._delivery_error(error)
            raise (_unknown_effect_error(problem) if isinstance(problem, ServerLost) else problem) from error

    async def ask_update(self, name: str, argument: Any, within: timedelta, *, update_id: str | None = None) -> Any:
        """Send an update without looking for a worker, and return its answer.

        It raises the SDK's errors. Only a cancellation, which the SDK replaces by an error, is raised as one.
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
        """Raise RunEnded, NoAnswer if no worker polls, or TaskFails if workers fail to continue the run."""
        described = await self.describe()
        if described.status != WorkflowExecutionStatus.RUNNING:
            raise RunEnded(self._id)
        if not await may_be_served(self._client, described):
            raise await _silence_error(described)
        if failing := await self._failing_task(described):
            raise failing

    async def _not_taken_error(self) -> NotTakenYet:
        try:
            described = await self.describe()
        except ServerLost as lost:
            return _unknown_effect_error(lost)
        needed = await needed_worker(described)
        return NotTakenYet(
            f"no {needed.name} on task queue {described.task_queue!r} has answered, and it may take effect when one "
            "comes",
            f"start one with: {needed.command}",
        )

    async def _no_answer_error(self) -> NoAnswer:
        described = await self.describe()
        if failing := await self._failing_task(described):
            return failing
        return await _silence_error(described)

    async def _failing_task(self, described: WorkflowExecutionDescription) -> TaskFails | None:
        failing = await failing_task(self._client, described)
        return TaskFails(self._id, failing.problem_line, failing.remedy) if failing else None

    async def _wait_for_record(self) -> None:
        """Wait briefly while a workflow task is pending.

        After a lost cache, a query may show a question that no workflow task has recorded yet. If that task accepted an
        update about it, the update would precede the question in every replay, and the replay would fail.
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
    """Return the error for an update that a run refused. Its class depends on the run's name for the refusal."""
    cause = error.cause
    if not isinstance(cause, ApplicationError):
        return Refused(str(cause))
    kind = cause.type or ""
    refused = REFUSALS.get(kind, Refused)(cause.message)
    refused.kind, refused.details = kind, cause.details
    return refused


def sender_fields(by: str, intervention_id: str = "") -> dict[str, str]:
    """Return the fields of a signal that identify the intervention and its sender. Empty if neither is given."""
    found = sender_of({"id": intervention_id, "by": by})
    if intervention_id and "id" not in found:
        raise InvalidInput("intervention_id: take at most 64 printable ASCII characters, without spaces")
    return found


def check_length(text: str) -> None:
    """Raise TooLong for a text that a run would cut."""
    size = len(text.encode("utf-8", "replace"))
    if size > MAX_SIGNAL_BYTES:
        raise TooLong(size, MAX_SIGNAL_BYTES)


async def _silence_error(described: WorkflowExecutionDescription) -> NoAnswer:
    needed = await needed_worker(described)
    return NoAnswer(described.task_queue, needed.command, needed.name)


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
