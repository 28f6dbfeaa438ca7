"""What a run was started for, and what came of it: for who looks when it has ended."""

from contextlib import aclosing
from dataclasses import asdict, dataclass
from typing import Any

from temporalio.client import Client, WorkflowExecutionDescription, WorkflowExecutionStatus

from orga.client.cli.terminal_text import behind, on_one_line
from orga.client.journal.reading import read_journal
from orga.client.runs.agents import AgentHandle

TASK_CHARS = 600


@dataclass(frozen=True)
class Outcome:
    """Of a run, live or ended."""

    task: str
    answer: str | None = None
    """None while it is live, and of one that has none: it failed, or was terminated."""

    def shown(self) -> dict[str, Any]:
        """Return what `--json` writes."""
        return asdict(self)

    def lines_around(self, lines: list[str]) -> list[str]:
        """Return the lines of a status with the task before and the answer behind them."""
        answer = behind("answer     ", self.answer) if self.answer else []
        return [f"task       {on_one_line(self.task, TASK_CHARS)}", *lines, *answer]


async def outcome(client: Client, described: WorkflowExecutionDescription) -> Outcome:
    """Return the outcome of a run; no worker is needed."""
    if described.status != WorkflowExecutionStatus.COMPLETED:
        return Outcome(await _task(client, described))
    ended = await AgentHandle(client, described.id).result()
    return Outcome(await _task(client, described), ended.output)


async def _task(client: Client, described: WorkflowExecutionDescription) -> str:
    """Return the task as it was given; its beginning where the server keeps no more of a long run."""
    async with aclosing(read_journal(client, described.id)) as entries:
        async for entry in entries:
            if entry.event == "Started" and "task" in entry.data:
                return str(entry.data["task"])
            break
    return await described.static_summary() or ""
