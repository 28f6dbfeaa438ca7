"""Signals, queries and updates to a run, with their failures as `OrgaError`s. A slow query is asked a second time."""

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
from orga.client.history.bounded_arguments import MAX_UPDATE_BYTES
from orga.client.runs.failing_tasks import failing_task
from orga.client.server.pollers import may_be_polled
from orga.client.server.server_errors import error_reason, is_lost
from orga.workflows.decisions.control.interventions import MAX_SIGNAL_BYTES

T = TypeVar("T")

HEDGE_AFTER = timedelta(seconds=3)
"""A worker that has the run at hand answers within milliseconds; one that replays it first, within seconds."""


async def first_answer(
    ask: Callable[[timedelta], Awaitable[T]], within: timedelta, after: timedelta = HEDGE_AFTER
) -> T:
    """Return the first answer to a question that is asked once more after a while.

    Args:
        ask: Asks, and gives up after the time it gets.
        within: How long all of it may take.
        after: How long the first may wait alone.

    Raises:
        Exception: As the first raises, once no other answer can come.
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
"""A workflow task takes milliseconds, but for one in which an embedded policy engine is slow."""

UNPROCESSED = "UnprocessedUpdate"
"""How the server fails an update that its workflow task left out: a worker does that which has just taken a run over
while somebody asks for its status (temporalio 1.35). Nobody has seen the update, so it is sent again."""

_UNANSWERED_STATUSES = {
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
            raise user_error(error, self._id) from error

    async def signal(self, name: str, *arguments: str | dict[str, Any]) -> None:
        """Send a signal; a run without a worker takes it in when one comes.

        Raises:
            TooLong: The run would cut it; nothing was sent.
        """
        for argument in arguments:
            check_length(argument if isinstance(argument, str) else to_json(argument).decode())
        try:
            await self.workflow.signal(name, args=list(arguments))
        except RPCError as error:
            raise self._delivery_error(error) from error

    async def query(self, name: str, *arguments: Any) -> Any:
        """Ask; only a worker can answer."""
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

    async def update(self, name: str, argument: Any) -> Any:
        """Send an update. Without a worker it is not sent: it would take effect whenever one comes.

        Raises:
            Refused: The run's validator turned it away.
            RunEnded: The run is not live.
            NoAnswer: No worker polls; `NotTakenYet` when one did a moment ago, or the server was lost meanwhile.
            ServerLost: It was away before; nothing was sent.
            TooLong: No run takes it; nothing was sent.
        """
        if (size := len(to_json(argument))) > MAX_UPDATE_BYTES:
            raise TooLong(size, MAX_UPDATE_BYTES)
        await self.polled()
        await self._wait_for_record()
        try:
            return await self.ask_update(name, argument, ANSWER_TIMEOUT)
        except UpdateFailed as error:
            if isinstance(error.cause, ApplicationError) and error.cause.type == UNPROCESSED:
                return await self.update(name, argument)
            raise refusal_error(error) from None
        except UpdateUnanswered:
            raise await self._not_taken_error() from None
        except RPCError as error:
            if isinstance(refused := self._delivery_error(error), ServerLost):
                raise _unknown_effect_error(refused) from error
            raise refused from error

    async def ask_update(self, name: str, argument: Any, within: timedelta, *, update_id: str | None = None) -> Any:
        """Send an update, whoever polls, and return its answer; the SDK's own errors, but a cancellation stays one."""
        try:
            return await self.workflow.execute_update(name, argument, id=update_id, rpc_timeout=within)  # pyright: ignore[reportUnknownMemberType]
        except UpdateUnanswered as error:
            if isinstance(error.__cause__, asyncio.CancelledError):
                raise asyncio.CancelledError from None
            raise

    async def polled(self) -> None:
        """See to it that a worker could take what is sent.

        Raises:
            RunEnded: It is not live.
            NoAnswer: No worker polls the task queue; `TaskFails` where workers do, and none can go on with the run.
        """
        described = await self.describe()
        if described.status != WorkflowExecutionStatus.RUNNING:
            raise RunEnded(self._id)
        if not await may_be_polled(self._client, described.task_queue):
            raise NoAnswer(described.task_queue, worker_command(await recorded_workplace(described)))
        await self._refuse_while_its_task_fails(described)

    async def _not_taken_error(self) -> NotTakenYet:
        """Return what is told of an update that nobody has answered."""
        try:
            described = await self.describe()
        except ServerLost as lost:
            return _unknown_effect_error(lost)
        return NotTakenYet(
            f"no worker on task queue {described.task_queue!r} has answered, and it may take effect when one comes",
            f"start one with: {worker_command(await recorded_workplace(described))}",
        )

    async def _no_answer_error(self) -> NoAnswer:
        """Return why nobody answers."""
        described = await self.describe()
        try:
            await self._refuse_while_its_task_fails(described)
        except TaskFails as error:
            return error
        return NoAnswer(described.task_queue, worker_command(await recorded_workplace(described)))

    async def _refuse_while_its_task_fails(self, described: WorkflowExecutionDescription) -> None:
        failing = await failing_task(self._client, described)
        if failing is not None:
            raise TaskFails(self._id, failing.told, failing.way_out)

    async def _wait_for_record(self) -> None:
        """Wait a moment for a workflow task under way.

        After a lost cache a query may show what no task has put on record yet (a question, say). An update that such a
        task took in would come before it in every replay, which then fails.
        """
        for _ in range(_RECORDING_LOOKS):
            if not (await self.describe()).raw_description.HasField("pending_workflow_task"):
                return
            await asyncio.sleep(_BETWEEN_LOOKS_S)

    def _delivery_error(self, error: RPCError) -> OrgaError:
        return RunEnded(self._id) if is_ended_error(error) else user_error(error, self._id)


_ENDED_MESSAGES = ("already completed", "aborted by closing workflow")
"""What the server says of a run that has ended, or ends as it is asked: by its status alone there is none."""


def is_ended_error(error: RPCError) -> bool:
    """Return whether the server says that the run has ended, or is ending."""
    return error.status == RPCStatusCode.NOT_FOUND and any(words in error.message for words in _ENDED_MESSAGES)


def refusal_error(error: UpdateFailed) -> Refused:
    """Return what a run says that turned an update away, by the kind that it calls it."""
    kind = (isinstance(error.cause, ApplicationError) and error.cause.type) or ""
    refused = REFUSALS.get(kind, Refused)(_refusal_text(error))
    refused.kind = kind
    return refused


def _refusal_text(error: UpdateFailed) -> str:
    """Return the validator's own words, without the type of its exception."""
    return error.cause.message if isinstance(error.cause, ApplicationError) else str(error.cause)


def check_length(text: str) -> None:
    """Refuse a text of which a run would take in a part only.

    Raises:
        TooLong: It is one.
    """
    size = len(text.encode("utf-8", "replace"))
    if size > MAX_SIGNAL_BYTES:
        raise TooLong(size, MAX_SIGNAL_BYTES)


def _unknown_effect_error(lost: ServerLost) -> NotTakenYet:
    return NotTakenYet(f"{lost.told}, and it may have taken effect", "see `orga doctor`")


def user_error(error: RPCError, workflow_id: str) -> OrgaError:
    """Return what a user is told when the server does not do as it was asked."""
    if error.status == RPCStatusCode.NOT_FOUND:
        return RunNotFound(workflow_id)
    if error.status == RPCStatusCode.INVALID_ARGUMENT:
        return OrgaError(f"the server refuses {workflow_id!r}: {error.message}")
    told = f"the Temporal server answered {error.status.name.lower()}: {error_reason(error)}"
    return ServerLost(told) if is_lost(error) else OrgaError(f"{told}; see `orga doctor`")
