"""Goals on a real server: started, answered, and observed from outside after their end."""

from typing import Any
from uuid import uuid4

from temporalio.client import Client, WorkflowHandle

from orga.client.journal.reading import read_journal
from orga.workflows.types.goals.pursuit import GoalResult
from orga.workflows.types.status import JournalEntry
from tests.support.runs.loop import Loop, check_journal, check_replay, check_tasks, histories_of


class EndedGoal:
    """A finished goal as seen from outside."""

    def __init__(self, raw: Any, journal: list[JournalEntry]) -> None:
        """Read its result and its journal."""
        self.result = GoalResult.model_validate(raw)
        self.reason = self.result.termination.reason
        self.journal = journal
        self.events = [entry.event for entry in journal]


async def start(
    loop: Loop, goal: str = "find out", workflow_id: str = "", agent: str = "default", **config: Any
) -> WorkflowHandle[Any, Any]:
    """Start a goal; `config` are keys of its GoalConfig."""
    return await loop.client.start_workflow(
        "GoalWorkflow",
        {"goal": goal, "agent": agent, **({"config": config} if config else {})},
        id=workflow_id or f"goal-{uuid4()}",
        task_queue=loop.task_queue,
        execution_timeout=loop.execution_timeout,
    )


async def wait_for_goal(handle: WorkflowHandle[Any, Any], client: Client) -> EndedGoal:
    """Wait for the end, replay the histories, check them against the law of the gate, and read the journal."""
    raw = await handle.result()
    for history in await histories_of(client, handle.id):
        check_tasks(history)
        await check_replay(history)
    journal = [entry async for entry in read_journal(client, handle.id)]
    check_journal(journal)
    return EndedGoal(raw, journal)


async def pursue(loop: Loop, goal: str = "find out", **config: Any) -> EndedGoal:
    """Pursue a goal to its end."""
    return await wait_for_goal(await start(loop, goal, **config), loop.client)


async def goal_status(handle: WorkflowHandle[Any, Any]) -> dict[str, Any]:
    """Return the status of the goal."""
    return await handle.query("status")


async def answer_goal(handle: WorkflowHandle[Any, Any], answer: Any) -> Any:
    """Answer the question of the goal."""
    return await handle.execute_update("answer", answer)  # pyright: ignore[reportUnknownMemberType]
