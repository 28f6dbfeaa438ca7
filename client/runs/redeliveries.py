"""Records each repeated sending of an answer of an ended goal. The goal itself can no longer record anything.

The record is a workflow execution that no worker runs. It starts before the answer is sent, so nobody else sends the
answer at the same time. It is terminated with the outcome as its reason. If it times out, the outcome is unknown.
"""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from typing import Any, Literal, NamedTuple

from temporalio.client import (
    Client,
    WorkflowExecution,
    WorkflowExecutionStatus,
    WorkflowHandle,
    WorkflowHistoryEventFilterType,
)
from temporalio.common import WorkflowIDReusePolicy
from temporalio.exceptions import WorkflowAlreadyStartedError
from temporalio.service import RPCError, RPCStatusCode

from orga.activities.ports import NotifyError, RunKey
from orga.client.errors import OrgaError
from orga.client.history.values import readable
from orga.client.runs.newest import replaced_run_ids
from orga.workflows.types.goals.deliveries import Delivered
from orga.workflows.types.goals.pursuit import GoalResult
from orga.workflows.types.names import DEAD_LETTERS, GOAL_WORKFLOW

REDELIVERY = "OrgaRedelivery"
"""The type of these executions."""

UNPOLLED_QUEUE = "orga-redeliveries"
"""Their task queue, which nobody polls."""

EXECUTION_TIMEOUT = timedelta(minutes=5)
"""After this time, a sending whose process has died no longer blocks the next one."""

SendingOutcome = Literal["delivered", "not taken", "unknown"]


class Sending(NamedTuple):
    """The newest sending of a delivery. Numbers begin at 1, and 0 means none."""

    number: int
    outcome: SendingOutcome


NEVER_SENT = Sending(0, "not taken")


async def last_sending(client: Client, goal: RunKey, name: str) -> Sending:
    """Return the newest sending of a delivery of this goal run, or `NEVER_SENT`."""
    last = NEVER_SENT
    while (outcome := await _read_outcome(client, _redelivery_id(goal, name, last.number + 1))) is not None:
        last = Sending(last.number + 1, outcome)
    return last


@asynccontextmanager
async def record_sending(client: Client, goal: RunKey, name: str, last: Sending) -> AsyncGenerator[None]:
    """Record that the block sends the answer, as the next sending after `last`, and record the outcome."""
    try:
        sending: WorkflowHandle[Any, Any] = await client.start_workflow(
            REDELIVERY,
            id=_redelivery_id(goal, name, last.number + 1),
            task_queue=UNPOLLED_QUEUE,
            execution_timeout=EXECUTION_TIMEOUT,
            id_reuse_policy=WorkflowIDReusePolicy.REJECT_DUPLICATE,
            memo={"goal": goal.workflow_id, "delivery": name},
        )
    except WorkflowAlreadyStartedError:
        raise OrgaError("somebody else sends it at this moment") from None
    except RPCError as error:
        raise OrgaError(f"it is not sent, since the server does not record it: {error.message}") from error
    outcome: SendingOutcome = "unknown"
    try:
        yield
        outcome = "delivered"
    except NotifyError as error:
        outcome = "unknown" if error.may_have_arrived else "not taken"
        raise
    finally:
        await _record_outcome(sending, outcome)


async def _record_outcome(sending: WorkflowHandle[Any, Any], outcome: SendingOutcome) -> None:
    try:
        await sending.terminate(reason=outcome)
    except RPCError as error:
        fact = "whether it was taken is not known" if outcome == "unknown" else f"it was {outcome}"
        raise OrgaError(f"{fact}, which the server does not record: {error.message}") from error


async def _read_outcome(client: Client, sending_id: str) -> SendingOutcome | None:
    sending = client.get_workflow_handle(sending_id)
    try:
        if (await sending.describe()).status != WorkflowExecutionStatus.TERMINATED:
            return "unknown"
    except RPCError as error:
        if error.status == RPCStatusCode.NOT_FOUND:
            return None
        raise
    ends = WorkflowHistoryEventFilterType.CLOSE_EVENT
    async for event in sending.fetch_history_events(event_filter_type=ends):
        reason = event.workflow_execution_terminated_event_attributes.reason
        if reason in ("delivered", "not taken"):
            return reason
    return "unknown"


def _redelivery_id(goal: RunKey, name: str, number: int) -> str:
    digest = sha256("\0".join((goal.workflow_id, goal.run_id, name)).encode("utf-8", "replace")).hexdigest()
    return f"redelivery-{digest[:32]}-{number}"


LISTED_FOR = timedelta(days=7)
"""A failed delivery is listed for this time after the end of its goal."""


class FailedDelivery(NamedTuple):
    """An answer that a channel did not accept."""

    goal: WorkflowExecution
    delivery: Delivered
    listed_until: datetime


async def failed_deliveries(client: Client) -> AsyncGenerator[FailedDelivery]:
    """Yield recent failed deliveries, first those of the goals that ended last."""
    since = (datetime.now(UTC) - LISTED_FOR).isoformat()
    query = (
        f"WorkflowType = '{GOAL_WORKFLOW}' AND ExecutionStatus = 'Completed' AND {DEAD_LETTERS.name} > 0 "
        f"AND CloseTime > '{since}'"
    )
    async for goal in client.list_workflows(query):
        if await replaced_run_ids(client, [goal]):
            continue
        try:
            failed = await goal_failed_deliveries(client, goal)
        except RPCError:
            raise
        except Exception:  # this client lacks the goal's codec, and a codec may raise anything
            continue
        for each in failed:
            if (await last_sending(client, RunKey(goal.id, goal.run_id), each.name)).outcome == "delivered":
                continue
            yield FailedDelivery(goal, each, (goal.close_time or goal.start_time) + LISTED_FOR)


async def goal_failed_deliveries(client: Client, goal: WorkflowExecution) -> list[Delivered]:
    """Return the failed deliveries of a completed goal."""
    ended = readable(await client.get_workflow_handle(goal.id, run_id=goal.run_id).result())
    return [each for each in GoalResult.model_validate(ended).deliveries if each.status == "failed"]
