"""Where a run stands, by its history: for when no worker answers."""

from collections.abc import AsyncIterable
from dataclasses import asdict, dataclass
from typing import Any

from orga.client.cli.held_calls import in_words
from orga.client.cli.plan_lines import plan_lines
from orga.client.cli.progress import Progress
from orga.client.cli.terminal_text import on_one_line
from orga.client.journal.plans import PlanFold
from orga.client.runs.failing_tasks import FailingTask
from orga.workflows.types.questions import QUESTION_ANSWERED, QUESTION_ASKED
from orga.workflows.types.status import JournalEntry
from orga.workflows.types.text import in_full


@dataclass(frozen=True)
class HistoryStatus:
    """What the journal tells."""

    progress: Progress
    last: JournalEntry | None
    asked: tuple[JournalEntry, ...]
    """Questions to people that nobody has decided."""
    plan: dict[str, Any] | None = None
    """Of a goal."""
    failing: FailingTask | None = None
    """What keeps workers from going on with it."""

    @property
    def why(self) -> str:
        """Why it is not the run that tells, if that is no lack of workers."""
        return f"{self.failing.told}; this is what the history tells. {self.failing.way_out}" if self.failing else ""

    @property
    def termination(self) -> dict[str, Any] | None:
        """How the run ended, if it did."""
        ended = self.last if self.last is not None and self.last.event == "Terminated" else None
        return {key: ended.data.get(key) for key in ("reason", "detail")} if ended else None

    def shown(self) -> dict[str, Any]:
        """Return what `--json` writes."""
        return {
            "from": "history",
            "agent": self.progress.agent,
            "phase": self.progress.phase,
            "paused": self.progress.paused,
            "iteration": self.progress.iteration,
            "tokens": self.progress.tokens,
            "waiting": [{"kind": _kind(entry), **entry.data} for entry in self.asked],
            **({"plan": self.plan} if self.plan else {}),
            "termination": self.termination,
            "task_fails": {**asdict(self.failing), "way_out": self.failing.way_out} if self.failing else None,
        }

    def lines(self) -> list[str]:
        """Return what people read."""
        progress, ended = self.progress, self.termination
        lines = [
            f"phase      {'paused' if progress.paused else progress.phase}",
            f"agent      {in_full(progress.agent)}",
            f"round      {self.plan['rounds']}" if self.plan else f"iteration  {progress.iteration}",
            f"spent      {progress.tokens} tokens",
            *plan_lines(self.plan),
        ]
        for entry in self.asked:
            question = _question(entry.data)
            kind, asked_id = in_full(_kind(entry)), in_full(str(entry.data.get("id")))
            lines.append(f"waits      {kind} {asked_id}: {question}")
        if self.failing:
            lines.append(f"stuck      {on_one_line(self.failing.told, 600)}")
        if ended:
            lines.append(f"ended      {ended['reason']} {on_one_line(ended['detail'] or '', 600)}".rstrip())
        return lines


def _kind(entry: JournalEntry) -> str:
    return str(entry.data.get("kind", "answer"))


def _question(data: dict[str, Any]) -> str:
    return in_words(data) if data.get("kind") == "call" else on_one_line(str(data.get("question", "")), 300)


async def history_status(entries: AsyncIterable[JournalEntry]) -> HistoryStatus:
    """Fold the journal of a run; what its delegated runs ask is theirs."""
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
