"""Goals that have ended and whose answer a channel has not taken, as visibility and their results tell.

Nothing of a goal that is over can change, so it is told of for a while, unless its answer was delivered later.
"""

from collections.abc import AsyncGenerator
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from temporalio.client import Client, WorkflowExecution

from orga.activities.ports import RunKey
from orga.client.runs.newest import replaced
from orga.client.runs.redeliveries import last_sending
from orga.workflows.types.goals.deliveries import Delivered
from orga.workflows.types.goals.result import GoalResult
from orga.workflows.types.names import DEAD_LETTERS, GOAL_WORKFLOW

TOLD_FOR = timedelta(days=7)
"""Since the end of the goal."""


class FailedDelivery(NamedTuple):
    """An answer that a channel has not taken."""

    goal: WorkflowExecution
    delivery: Delivered
    told_until: datetime


async def failed_deliveries(client: Client) -> AsyncGenerator[FailedDelivery]:
    """Yield what was not delivered lately, the goals that ended last first.

    Raises:
        RPCError: The server does not list runs.
    """
    since = (datetime.now(UTC) - TOLD_FOR).isoformat()
    query = (
        f"WorkflowType = '{GOAL_WORKFLOW}' AND ExecutionStatus = 'Completed' AND {DEAD_LETTERS.name} > 0 "
        f"AND CloseTime > '{since}'"
    )
    async for goal in client.list_workflows(query):
        if await replaced(client, [goal]):
            continue
        for each in await not_taken(client, goal):
            if (await last_sending(client, RunKey(goal.id, goal.run_id), each.name)).outcome == "delivered":
                continue
            yield FailedDelivery(goal, each, (goal.close_time or goal.start_time) + TOLD_FOR)


async def not_taken(client: Client, goal: WorkflowExecution) -> list[Delivered]:
    """Return the deliveries that failed, of a goal that has completed."""
    ended = await client.get_workflow_handle(goal.id, run_id=goal.run_id).result()
    return [each for each in GoalResult.model_validate(ended).deliveries if each.status == "failed"]
