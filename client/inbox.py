"""The inbox: what waits for a person, over all runs. Visibility says which runs wait, the runs say for what."""

from collections.abc import AsyncGenerator, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime

from temporalio.client import Client, WorkflowExecution
from temporalio.service import RPCError

from client.asking import AT_ONCE, Asked, Asking
from client.errors import OrgaError
from workflows.types.names import AGENT_WORKFLOW
from workflows.types.search_attributes import AGENT, WAITING
from workflows.types.status import AgentStatus, Budgets
from workflows.types.waits import Wait, WaitKind

WAITING_RUNS = f"WorkflowType = '{AGENT_WORKFLOW}' AND ExecutionStatus = 'Running' AND {WAITING.name} IS NOT NULL"
"""Running ones only: a run that was terminated could not say that it waits no more."""


@dataclass(frozen=True)
class Question:
    """Something that waits for a person."""

    run_id: str
    agent: str | None
    kind: str
    task_queue: str
    run_started: datetime
    wait: Wait | None = None
    """None where no worker answers: then no more than the kind is known."""
    budgets: Budgets | None = None


async def inbox(client: Client, *, kind: WaitKind | None = None, queue: str | None = None) -> AsyncGenerator[Question]:
    """Yield what waits for a person, the oldest runs first.

    A run that does not answer is told by its kind, whatever its queue: nobody could find it otherwise.

    Args:
        client: From `connect`.
        kind: Only questions of this kind.
        queue: Only questions to these people, as a tool's recovery names them.

    Raises:
        OrgaError: The server does not list runs.
    """
    runs, asking = await _waiting_runs(client), Asking(client)
    for start in range(0, len(runs), AT_ONCE):
        some = runs[start : start + AT_ONCE]
        statuses = await asking.statuses([Asked(run.id, run.task_queue) for run in some])
        for question in _questions(some, statuses):
            if kind in (None, question.kind) and _is_for(queue, question):
                yield question


async def _waiting_runs(client: Client) -> list[WorkflowExecution]:
    try:
        found = [run async for run in client.list_workflows(WAITING_RUNS)]
    except RPCError as error:
        raise OrgaError(f"the server does not list waiting runs: {error.message}; see `orga doctor`") from error
    return sorted(found, key=lambda run: run.start_time)


def _questions(runs: Sequence[WorkflowExecution], statuses: Sequence[AgentStatus | None]) -> Iterator[Question]:
    for run, status in zip(runs, statuses, strict=True):
        attributes = run.typed_search_attributes
        agent, kind = attributes.get(AGENT), attributes.get(WAITING) or ""
        if status is None:
            yield Question(run.id, agent, kind, run.task_queue, run.start_time)
        for wait in status.waiting if status else ():
            yield Question(run.id, agent, wait.kind, run.task_queue, run.start_time, wait, status and status.budgets)


def _is_for(queue: str | None, question: Question) -> bool:
    return queue is None or question.wait is None or question.wait.queue == queue
