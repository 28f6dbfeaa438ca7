"""The `read_past` activity: what a fork shares, from the history of the run whose past it is."""

from temporalio import activity
from temporalio.exceptions import ApplicationError

from orga.activities.beating import heartbeats
from orga.activities.ports import Pasts
from orga.workflows.types.names import READ_PAST
from orga.workflows.types.past import ForkInput
from orga.workflows.types.record import InvalidInput
from orga.workflows.types.state import AgentState


class PastActivities:
    """Reads histories through a port."""

    def __init__(self, pasts: Pasts) -> None:
        self._pasts = pasts

    @activity.defn(name=READ_PAST)
    async def read_past(self, wish: ForkInput) -> AgentState:
        """Return the past, bounded to what one payload takes; what the starter got wrong is final."""
        try:
            async with heartbeats(dict[str, str]):
                return await self._pasts.shared(wish)
        except InvalidInput as error:
            raise ApplicationError(str(error), type="InvalidInput", non_retryable=True) from None
