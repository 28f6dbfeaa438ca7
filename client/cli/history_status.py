"""Where a run stands, by its history: for when no worker answers."""

from collections.abc import AsyncIterable
from dataclasses import dataclass
from typing import Any

from client.cli.held_calls import in_words
from client.cli.progress import Progress
from client.cli.terminal_text import on_one_line
from workflows.types.journal import JournalEntry


@dataclass(frozen=True)
class HistoryStatus:
    """What the journal tells."""

    progress: Progress
    last: JournalEntry | None
    asked: tuple[JournalEntry, ...]
    """Questions to people that nobody has decided."""

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
            "waiting": [entry.data for entry in self.asked],
            "termination": self.termination,
        }

    def lines(self) -> list[str]:
        """Return what people read."""
        progress, ended = self.progress, self.termination
        lines = [
            f"phase      {'paused' if progress.paused else progress.phase}",
            f"agent      {progress.agent}",
            f"iteration  {progress.iteration}",
            f"spent      {progress.tokens} tokens",
        ]
        for entry in self.asked:
            question = _question(entry.data)
            lines.append(f"waits      {entry.data.get('kind')} {entry.data.get('id')}: {question}")
        return lines + ([f"ended      {ended['reason']} {ended['detail'] or ''}".rstrip()] if ended else [])


def _question(data: dict[str, Any]) -> str:
    return in_words(data) if data.get("kind") == "call" else on_one_line(str(data.get("question", "")), 300)


async def history_status(entries: AsyncIterable[JournalEntry]) -> HistoryStatus:
    """Fold the journal of a run; what its delegated runs ask is theirs."""
    progress, last = Progress(), None
    asked: dict[str, JournalEntry] = {}
    async for entry in entries:
        progress = progress.with_entry(entry)
        if entry.data.get("run"):
            continue
        last = entry
        if entry.event == "ApprovalRequested":
            asked[str(entry.data.get("id"))] = entry
        elif entry.event == "ApprovalResolved":
            asked.pop(str(entry.data.get("id")), None)
    is_over = last is not None and last.event == "Terminated"
    return HistoryStatus(progress, last, () if is_over else tuple(asked.values()))
