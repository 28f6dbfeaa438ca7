"""The inbox: what waits for a person, over all runs. Visibility says which runs wait, the runs say for what.

What an ended goal could not deliver waits, too: for somebody who sends it again.
"""

from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from temporalio.client import Client, WorkflowExecution
from temporalio.service import RPCError

from orga.client.config.workplace import recorded_workplace, worker_command
from orga.client.errors import OrgaError
from orga.client.runs.failing_tasks import FailingTask, failing_tasks
from orga.client.runs.listing import AT_ONCE, RunToQuery, StatusQueries
from orga.client.runs.redeliveries import FailedDelivery, failed_deliveries
from orga.client.server.server_errors import error_reason
from orga.workflows.types.names import AGENT, RUN_WORKFLOWS, WAITING
from orga.workflows.types.questions import QuestionKind, ShownQuestion
from orga.workflows.types.status import AgentStatus

WAITING_RUNS = f"WorkflowType IN {RUN_WORKFLOWS} AND ExecutionStatus = 'Running' AND {WAITING.name} IS NOT NULL"
"""Running ones only: a run that was terminated could not say that it waits no more."""


DELIVERY = "delivery"

InboxKind = Literal[QuestionKind, "delivery"]
"""Of what waits: a kind of question, or an answer that was not delivered."""


@dataclass(frozen=True)
class InboxEntry:
    """Something that waits for a person."""

    run_id: str
    """The id of the run, for `AgentHandle(client, run_id)`."""
    agent: str | None
    kind: str
    """`approval`, `answer`, `escalation`, `budget` or `delivery`."""
    task_queue: str
    worker_command: str
    """What starts a worker for it."""
    run_started: datetime
    wait: ShownQuestion | None = None
    """None where no worker answers: then no more than the kind is known; and of what is no question."""
    failing: FailingTask | None = None
    """What keeps workers from going on with the run; nobody can decide anything there until that is mended."""
    undelivered: FailedDelivery | None = None
    """What an ended goal could not deliver."""


async def inbox(
    client: Client, *, kind: InboxKind | None = None, queue: str | None = None
) -> AsyncGenerator[InboxEntry]:
    """Yield what waits for a person: questions, the oldest runs first, then what was not delivered lately.

    A run that does not answer is shown by its kind, whatever its queue: nobody could find it otherwise.

    Args:
        client: From `connect`.
        kind: Only what is of this kind.
        queue: Only questions to these people, as a tool's recovery names them.

    Raises:
        OrgaError: The server does not list runs.
    """
    runs, asking = await _waiting_runs(client), StatusQueries(client)
    for start in range(0, len(runs), AT_ONCE):
        some = runs[start : start + AT_ONCE]
        statuses = await asking.statuses([RunToQuery(run.id, run.task_queue) for run in some])
        silent = [run.id for run, status in zip(some, statuses, strict=True) if status is None]
        failing = await failing_tasks(client, silent)
        async for question in _questions(some, statuses, failing):
            if kind in (None, question.kind) and _is_for_queue(queue, question):
                yield question
    if kind in (None, DELIVERY) and queue is None:
        async for entry in _undelivered_entries(client):
            yield entry


async def _waiting_runs(client: Client) -> list[WorkflowExecution]:
    try:
        found = [run async for run in client.list_workflows(WAITING_RUNS)]
    except RPCError as error:
        raise OrgaError(f"the server does not list waiting runs: {error_reason(error)}; see `orga doctor`") from error
    return sorted(found, key=lambda run: run.start_time)


async def _questions(
    runs: Sequence[WorkflowExecution], statuses: Sequence[AgentStatus | None], failing: Mapping[str, FailingTask]
) -> AsyncGenerator[InboxEntry]:
    for run, status in zip(runs, statuses, strict=True):
        command = worker_command(await recorded_workplace(run))
        attributes = run.typed_search_attributes
        agent, kind = attributes.get(AGENT), attributes.get(WAITING) or ""
        if status is None:
            stuck = failing.get(run.id)
            yield InboxEntry(run.id, agent, kind, run.task_queue, command, run.start_time, failing=stuck)
        for wait in status.waiting if status else ():
            yield InboxEntry(run.id, agent, wait.kind, run.task_queue, command, run.start_time, wait)


async def _undelivered_entries(client: Client) -> AsyncGenerator[InboxEntry]:
    try:
        async for failed in failed_deliveries(client):
            goal = failed.goal
            agent, command = goal.typed_search_attributes.get(AGENT), worker_command(await recorded_workplace(goal))
            yield InboxEntry(goal.id, agent, DELIVERY, goal.task_queue, command, goal.start_time, undelivered=failed)
    except RPCError as error:
        raise OrgaError(f"the server does not list ended goals: {error_reason(error)}; see `orga doctor`") from error


def _is_for_queue(queue: str | None, question: InboxEntry) -> bool:
    return queue is None or question.wait is None or question.wait.queue == queue
