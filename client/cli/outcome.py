"""What a run was started for, and what came of it: for who looks when it has ended."""

from contextlib import aclosing
from dataclasses import asdict, dataclass
from typing import Any

from temporalio.client import Client, WorkflowExecutionDescription, WorkflowExecutionStatus

from orga.client.cli.goal_results import goal_result
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
    confidence: float | None = None
    """Of a goal that has ended."""

    def shown(self) -> dict[str, Any]:
        """Return what `--json` writes."""
        return {key: value for key, value in asdict(self).items() if key != "confidence" or value is not None}

    def lines_around(self, lines: list[str]) -> list[str]:
        """Return the lines of a status with the task before and the answer behind them."""
        answer = behind("answer     ", self.answer) if self.answer else []
        worth = [] if self.confidence is None else [f"confidence {self.confidence:.2f}"]
        task = [f"task       {on_one_line(self.task, TASK_CHARS)}"] if self.task else []
        return [*task, *lines, *worth, *answer]


async def outcome(client: Client, described: WorkflowExecutionDescription) -> Outcome:
    """Return the outcome of a run; no worker is needed."""
    if described.status != WorkflowExecutionStatus.COMPLETED:
        return Outcome(await _task(client, described))
    ended = await AgentHandle(client, described.id).result()
    goal = goal_result(ended)
    return Outcome(await _task(client, described), ended.output, goal and goal.confidence)


async def _task(client: Client, described: WorkflowExecutionDescription) -> str:
    """Return the task as it was given; its beginning where the server keeps no more of a long run."""
    async with aclosing(read_journal(client, described.id)) as entries:
        async for entry in entries:
            if entry.event == "Started" and entry.data.get("task"):
                return str(entry.data["task"])
            break
    return await described.static_summary() or ""
