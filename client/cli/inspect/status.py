"""`orga status`: the state of a run, from its query or, without a worker, from its history."""

from collections.abc import AsyncIterable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from temporalio.client import WorkflowExecutionStatus

from orga.client.cli.interrupts import run_interruptible
from orga.client.cli.options import ConfigFile, Json, RunId
from orga.client.cli.session import CliContext, run_context
from orga.client.cli.shown.decisions import held_call_text
from orga.client.cli.shown.progress import Progress
from orga.client.cli.shown.status_text import plan_lines, run_outcome, status_lines
from orga.client.cli.shown.text import on_one_line, write_json, write_note, write_result
from orga.client.config.workplace import recorded_workplace, worker_command
from orga.client.errors import NoAnswer
from orga.client.journal.plans import PlanFold
from orga.client.journal.reading import read_journal
from orga.client.runs.failing_tasks import FailingTask, failing_task
from orga.client.server.pollers import may_be_polled
from orga.client.workers.routing import is_version_missing, pinned_version
from orga.workflows.types.questions import QUESTION_ANSWERED, QUESTION_ASKED
from orga.workflows.types.status import AgentStatus, JournalEntry
from orga.workflows.types.text import full_field_text


@dataclass(frozen=True)
class HistoryStatus:
    """The state of a run as folded from its journal."""

    progress: Progress
    last: JournalEntry | None
    asked: tuple[JournalEntry, ...]
    """Questions to people that nobody has decided."""
    plan: dict[str, Any] | None = None
    """The plan of a goal."""
    failing: FailingTask | None = None
    """The failing workflow task, if workers are there but cannot continue the run."""

    @property
    def failure_text(self) -> str:
        """The reason for reading the history if a workflow task fails, with the remedy; else ""."""
        return (
            f"{self.failing.problem_line}; this is the state in the history. {self.failing.remedy}"
            if self.failing
            else ""
        )

    @property
    def termination(self) -> dict[str, Any] | None:
        """Reason and detail of the run's end, or None."""
        ended = self.last if self.last is not None and self.last.event == "Terminated" else None
        return {key: ended.data.get(key) for key in ("reason", "detail")} if ended else None

    def json_fields(self) -> dict[str, Any]:
        """Return the value that `--json` writes."""
        return {
            "from": "history",
            "agent": self.progress.agent,
            "phase": self.progress.phase,
            "paused": self.progress.paused,
            "iteration": self.progress.iteration,
            "tokens": self.progress.tokens,
            "waiting": [{"kind": _question_kind(entry), **entry.data} for entry in self.asked],
            **({"plan": self.plan} if self.plan else {}),
            "termination": self.termination,
            "task_fails": {**asdict(self.failing), "way_out": self.failing.remedy} if self.failing else None,
        }

    def lines(self) -> list[str]:
        """Return the lines for people."""
        progress, ended = self.progress, self.termination
        lines = [
            f"phase      {'paused' if progress.paused else progress.phase}",
            f"agent      {full_field_text(progress.agent)}",
            f"round      {self.plan['rounds']}" if self.plan else f"iteration  {progress.iteration}",
            f"spent      {progress.tokens} tokens",
            *plan_lines(self.plan),
        ]
        for entry in self.asked:
            question = _question_text(entry.data)
            kind, asked_id = full_field_text(_question_kind(entry)), full_field_text(str(entry.data.get("id")))
            lines.append(f"waits      {kind} {asked_id}: {question}")
        if self.failing:
            lines.append(f"stuck      {on_one_line(self.failing.problem_line, 600)}")
        if ended:
            lines.append(f"ended      {ended['reason']} {on_one_line(ended['detail'] or '', 600)}".rstrip())
        return lines


def _question_kind(entry: JournalEntry) -> str:
    return str(entry.data.get("kind", "answer"))


def _question_text(data: dict[str, Any]) -> str:
    return held_call_text(data) if data.get("kind") == "call" else on_one_line(str(data.get("question", "")), 300)


async def history_status(entries: AsyncIterable[JournalEntry]) -> HistoryStatus:
    """Fold the journal of a run. Questions of its delegates are not included."""
    progress, last, plan = Progress(), None, PlanFold()
    asked: dict[str, JournalEntry] = {}
    async for entry in entries:
        progress = progress.with_entry(entry)
        if entry.data.get("run"):
            continue
        last = entry
        plan.feed(entry)
        if entry.event in {"ApprovalRequested", QUESTION_ASKED}:
            asked[str(entry.data.get("id"))] = entry
        elif entry.event in {"ApprovalResolved", QUESTION_ANSWERED}:
            asked.pop(str(entry.data.get("id")), None)
    is_over = last is not None and last.event == "Terminated"
    return HistoryStatus(progress, last, () if is_over else tuple(asked.values()), plan.plan)


def status(run: RunId, json: Json = False, config: ConfigFile = None) -> int:
    """Show the state of a run: phase, budgets, open questions, open circuits, delegates and dead letters.

    If the run has ended, its whole answer is shown too.

    Only a worker can query a run. Without one, the command reads the history, and --json has "from": "history". It
    does the same if the run's workflow task fails, so that no worker can continue it, and shows the cause and the
    remedy.

    Example: orga status ID --json
    """
    return run_interruptible(_status(run, config, as_json=json))


async def _status(named: str, config: Path | None, *, as_json: bool) -> int:
    async with run_context(named, config) as (here, run_id):
        described = await here.run(run_id).describe()
        failing, version = await failing_task(here.client, described), pinned_version(described)
        is_left = not failing and await is_version_missing(here.client, described.task_queue, version)
        answer = None if failing or is_left else await _query_status(here, run_id, described.task_queue)
        if answer is None:
            start = worker_command(await recorded_workplace(described))
            past = replace(await history_status(read_journal(here.client, run_id)), failing=failing)
            nobody = f"no worker of version {version.to_canonical_string()}" if is_left and version else "no worker"
            if described.status == WorkflowExecutionStatus.RUNNING:
                write_note(
                    past.failure_text
                    or f"{nobody} answers, so this is the state in the history; start one with: {start}"
                )
            shown, lines = past.json_fields(), past.lines()
        else:
            shown, lines = answer.model_dump(mode="json"), status_lines(run_id, answer)
        if version is not None:
            name = version.to_canonical_string()
            shown["version"] = name
            lines.insert(2, f"version    {on_one_line(name)}")
        outcome = await run_outcome(here.client, described)
    if as_json:
        write_json(shown | outcome.json_fields())
    else:
        write_result(*outcome.lines_around(lines))
    return 0


async def _query_status(here: CliContext, run_id: str, task_queue: str) -> AgentStatus | None:
    if not await may_be_polled(here.client, task_queue):
        return None
    try:
        return await here.run(run_id).status()
    except NoAnswer:
        return None
