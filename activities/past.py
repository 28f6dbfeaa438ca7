"""The `read_past` activity: what a fork shares, from the history of the run whose past it is."""

from typing import Any

from temporalio import activity
from temporalio.exceptions import ApplicationError

from orga.activities.beating import heartbeats
from orga.activities.ports import Pasts
from orga.workflows.types.names import GOAL_WORKFLOW, READ_PAST
from orga.workflows.types.past import parse_fork, parse_goal_fork
from orga.workflows.types.record import InvalidInput
from orga.workflows.types.state import AgentState


class PastActivities:
    """Reads histories through a port."""

    def __init__(self, pasts: Pasts) -> None:
        self._pasts = pasts

    @activity.defn(name=READ_PAST)
    async def read_past(self, given: dict[str, Any]) -> AgentState:
        """Return the past, bounded to what one payload takes; what the starter got wrong is final."""
        try:
            wish = parse_goal_fork(given) if activity.info().workflow_type == GOAL_WORKFLOW else parse_fork(given)
            async with heartbeats(dict[str, str]):
                return await self._pasts.shared(wish)
        except InvalidInput as error:
            raise ApplicationError(str(error), type="InvalidInput", non_retryable=True) from None
