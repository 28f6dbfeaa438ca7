"""Runs as visibility shows them: the query, and one row a run."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from temporalio.client import Client, WorkflowExecution, WorkflowExecutionStatus
from temporalio.service import RPCError, RPCStatusCode

from client.cli.exit_codes import UsageError
from client.errors import OrgaError
from workflows.types import search_attributes as known
from workflows.types.names import AGENT_WORKFLOW


@dataclass(frozen=True)
class Filter:
    """Which runs are wanted."""

    running: bool = False
    agent: str | None = None
    tenant: str | None = None
    query: str | None = None
    dead_letters: bool = False

    def visibility(self) -> str:
        """Return the query in Temporal's words."""
        parts = [f"WorkflowType = {_quoted(AGENT_WORKFLOW)}", "ExecutionStatus != 'ContinuedAsNew'"]
        if self.running:
            parts.append("ExecutionStatus = 'Running'")
        if self.dead_letters:
            parts.append(f"{known.DEAD_LETTERS.name} > 0")
        for key, value in ((known.AGENT, self.agent), (known.TENANT, self.tenant)):
            if value is not None:
                parts.append(f"{key.name} = {_quoted(value)}")
        return " AND ".join([*parts, *([f"({self.query})"] if self.query else [])])


@dataclass(frozen=True)
class Row:
    """One run."""

    id: str
    agent: str | None
    state: str
    """The phase of a live run, the ending of one that ended."""
    iteration: int | None
    started: datetime
    cost_usd: float | None
    tenant: str | None
    task_queue: str
    waiting: str | None = None
    """What a live run waits for a person for."""
    dead_letters: int = 0
    open_circuits: Sequence[str] = ()


async def rows(client: Client, wanted: Filter, limit: int) -> list[Row]:
    """Return the runs, newest first.

    Raises:
        UsageError: The server does not understand the query.
    """
    try:
        found = [_row(run) async for run in client.list_workflows(wanted.visibility(), limit=limit)]
    except RPCError as error:
        if error.status != RPCStatusCode.INVALID_ARGUMENT:
            raise OrgaError(f"the server does not list runs: {error.message}; see `orga doctor`") from error
        raise UsageError(f"the server refuses the query: {error.message}") from None
    return sorted(found, key=lambda row: row.started, reverse=True)


def table(shown: Sequence[Row]) -> str:
    """Return the rows in columns."""
    cells = [("ID", "AGENT", "STATE", "ITERATION", "STARTED", "COST USD"), *(_cells(row) for row in shown)]
    widths = [max(len(line[column]) for line in cells) for column in range(len(cells[0]))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in cells
    )


def _cells(row: Row) -> tuple[str, ...]:
    iteration = "-" if row.iteration is None else str(row.iteration)
    cost = "-" if row.cost_usd is None else f"{row.cost_usd:.4f}"
    return row.id, row.agent or "-", row.state, iteration, f"{row.started.astimezone():%Y-%m-%d %H:%M:%S}", cost


def _row(run: WorkflowExecution) -> Row:
    attributes, is_live = run.typed_search_attributes, run.status == WorkflowExecutionStatus.RUNNING
    return Row(
        id=run.id,
        agent=attributes.get(known.AGENT),
        state=_state(run),
        iteration=attributes.get(known.ITERATION),
        started=run.start_time,
        cost_usd=attributes.get(known.COST_USD),
        tenant=attributes.get(known.TENANT),
        task_queue=run.task_queue,
        waiting=attributes.get(known.WAITING) if is_live else None,
        dead_letters=attributes.get(known.DEAD_LETTERS) or 0,
        open_circuits=tuple(attributes.get(known.OPEN_CIRCUITS) or ()) if is_live else (),
    )


def _state(run: WorkflowExecution) -> str:
    attributes = run.typed_search_attributes
    if run.status == WorkflowExecutionStatus.RUNNING:
        if kind := attributes.get(known.WAITING):
            return f"running (waits: {kind})"
        return "running (paused)" if attributes.get(known.PHASE) == "paused" else "running"
    if run.status == WorkflowExecutionStatus.COMPLETED:
        return attributes.get(known.TERMINATION) or "completed"
    return run.status.name.lower() if run.status else "unknown"


def _quoted(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
