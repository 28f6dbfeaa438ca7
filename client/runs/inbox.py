"""The inbox: everything in all runs that waits for a person.

The server's visibility lists the waiting runs, and a query asks each run for its questions. If an ended goal could not
deliver its answer, that answer waits, too, until somebody sends it again.
"""

from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Literal

from temporalio.client import Client, WorkflowExecution
from temporalio.service import RPCError

from orga.client.config.workplace import recorded_workplace, worker_command
from orga.client.errors import OrgaError
from orga.client.runs.failing_tasks import FailingTask, failing_tasks
from orga.client.runs.listing import AT_ONCE, StatusQueries
from orga.client.runs.needed_worker import NeededWorker
from orga.client.runs.redeliveries import FailedDelivery, failed_deliveries
from orga.client.server.server_errors import error_reason
from orga.workflows.types.names import AGENT, RUN_WORKFLOWS, TENANT, WAITING
from orga.workflows.types.questions import Item, QuestionKind, ShownQuestion
from orga.workflows.types.status import AgentStatus

WAITING_RUNS_QUERY = f"WorkflowType IN {RUN_WORKFLOWS} AND ExecutionStatus = 'Running' AND {WAITING.name} IS NOT NULL"
"""Only live runs, because nothing clears the attribute of a terminated run."""


DELIVERY = "delivery"

InboxKind = Literal[QuestionKind, "delivery"]
"""A kind of question, or an answer that was not delivered."""


@dataclass(frozen=True)
class InboxEntry:
    """Something that waits for a person."""

    run_id: str
    """The id of the run, for `AgentHandle(client, run_id)`."""
    agent: str | None
    kind: str
    """`approval`, `answer`, `escalation`, `budget`, `result` or `delivery`."""
    task_queue: str
    worker_command: str
    """The command that starts a worker for the run."""
    run_started: datetime
    wait: ShownQuestion | None = None
    """The question. None for a delivery, or if no worker answers. Then only the kind is known."""
    failing: FailingTask | None = None
    """The failure that blocks the run. Nobody can decide anything there until it is fixed."""
    undelivered: FailedDelivery | None = None
    """The answer that an ended goal could not deliver."""
    tenant: str | None = None
    segment_id: str = ""
    """The run id of the execution that waits."""
    held: Sequence[Item] = ()
    """The held calls of the run, with all arguments that it holds."""
    worker: str = "worker"
    """The kind of worker that the run needs. For a run that is pinned to a version: `worker of version shop.k3m7qa`."""


async def inbox(
    client: Client, *, kind: InboxKind | None = None, queue: str | None = None
) -> AsyncGenerator[InboxEntry]:
    """Yield what waits for a person: questions, those of the oldest runs first, and then recent failed deliveries.

    If a run does not answer, its entry has only the kind, and is yielded for every `queue`, so that somebody sees it.

    Args:
        client: From `connect`.
        kind: Yield only this kind.
        queue: Yield only questions to this group of people, as a tool's recovery names it.

    Raises:
        OrgaError: The server does not list runs.
    """
    runs = await _waiting_runs(client)
    queries = StatusQueries(client)
    for start in range(0, len(runs), AT_ONCE):
        some = runs[start : start + AT_ONCE]
        statuses = await queries.statuses(some)
        silent = [run.id for run, status in zip(some, statuses, strict=True) if status is None]
        failing = await failing_tasks(client, silent)
        async for entry in _question_entries(some, statuses, failing, queries.lacking):
            is_for_queue = queue is None or entry.wait is None or entry.wait.queue == queue
            if kind in (None, entry.kind) and is_for_queue:
                yield entry
    if kind in (None, DELIVERY) and queue is None:
        async for entry in _undelivered_entries(client):
            yield entry


async def _waiting_runs(client: Client) -> list[WorkflowExecution]:
    try:
        found = [run async for run in client.list_workflows(WAITING_RUNS_QUERY)]
    except RPCError as error:
        raise OrgaError(f"the server does not list waiting runs: {error_reason(error)}; see `orga doctor`") from error
    return sorted(found, key=lambda run: run.start_time)


async def _question_entries(
    runs: Sequence[WorkflowExecution],
    statuses: Sequence[AgentStatus | None],
    failing: Mapping[str, FailingTask],
    lacking: Mapping[str, NeededWorker],
) -> AsyncGenerator[InboxEntry]:
    for run, status in zip(runs, statuses, strict=True):
        entry = await _run_entry(run, run.typed_search_attributes.get(WAITING) or "")
        if status is None:
            needed = lacking.get(run.id, NeededWorker(command=entry.worker_command))
            yield replace(entry, failing=failing.get(run.id), worker=needed.name, worker_command=needed.command)
            continue
        for wait in status.waiting:
            yield replace(entry, kind=wait.kind, wait=wait, held=status.pending_approvals)


async def _run_entry(run: WorkflowExecution, kind: str) -> InboxEntry:
    attributes = run.typed_search_attributes
    return InboxEntry(
        run_id=run.id,
        agent=attributes.get(AGENT),
        kind=kind,
        task_queue=run.task_queue,
        worker_command=worker_command(await recorded_workplace(run)),
        run_started=run.start_time,
        tenant=attributes.get(TENANT),
        segment_id=run.run_id,
    )


async def _undelivered_entries(client: Client) -> AsyncGenerator[InboxEntry]:
    try:
        async for failed in failed_deliveries(client):
            yield replace(await _run_entry(failed.goal, DELIVERY), undelivered=failed)
    except RPCError as error:
        raise OrgaError(f"the server does not list ended goals: {error_reason(error)}; see `orga doctor`") from error
