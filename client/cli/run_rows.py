"""Runs as visibility shows them: the query, and one row a run."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

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

    def visibility(self) -> str:
        """Return the query in Temporal's words."""
        parts = [f"WorkflowType = {_quoted(AGENT_WORKFLOW)}", "ExecutionStatus != 'ContinuedAsNew'"]
        if self.running:
            parts.append("ExecutionStatus = 'Running'")
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
    attributes = run.typed_search_attributes
    return Row(
        id=run.id,
        agent=attributes.get(known.AGENT),
        state=_state(run, attributes.get(known.PHASE), attributes.get(known.TERMINATION)),
        iteration=attributes.get(known.ITERATION),
        started=run.start_time,
        cost_usd=attributes.get(known.COST_USD),
        tenant=attributes.get(known.TENANT),
    )


def _state(run: WorkflowExecution, phase: Any, termination: Any) -> str:
    if run.status == WorkflowExecutionStatus.RUNNING:
        return f"running ({phase})" if phase == "paused" else "running"
    if run.status == WorkflowExecutionStatus.COMPLETED:
        return str(termination or "completed")
    return run.status.name.lower() if run.status else "unknown"


def _quoted(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
