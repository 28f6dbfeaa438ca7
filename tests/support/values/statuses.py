"""Statuses of runs, and their live views."""

from datetime import UTC, datetime
from typing import Any

from rich.console import Console

from orga.client.cli.live.screens import live_block
from orga.client.cli.shown.progress import Progress
from orga.client.journal.run_view import RunView
from orga.workflows.types.limits import Budgets
from orga.workflows.types.models.usage import ToolCallCounts, UsageTotals
from orga.workflows.types.status import AgentStatus, JournalEntry

NOW = datetime(2026, 1, 1, 0, 0, 10, tzinfo=UTC)


def progress_text(progress: Progress) -> str:
    console = Console(width=120, record=True, markup=False, emoji=False, quiet=False)
    with console.capture() as captured:
        console.print(live_block(progress, NOW))
    return captured.get()


def progress_after(*entries: JournalEntry, since: Progress | None = None) -> Progress:
    run, progress = RunView(), since or Progress()
    for entry in entries:
        progress = progress.with_entry(run.take(entry))
    return progress


def a_status(**fields: Any) -> AgentStatus:
    budgets = Budgets(
        iterations=20,
        max_iterations=25,
        tokens=900,
        max_total_tokens=1_000,
        cost_usd=None,
        max_cost_usd=None,
        time_s=295.0,
        timeout_s=300.0,
    )
    status = AgentStatus(
        agent="a",
        model="m",
        phase="reasoning",
        paused=False,
        iteration=5,
        usage=UsageTotals(cost_usd=0.25),
        tool_calls=ToolCallCounts(),
        budgets=budgets,
        pending_approvals=[],
        plan=None,
        question=None,
        breakers={},
        unread_interventions=[],
        termination=None,
    )
    return status.model_copy(update=fields)
