"""The `prepare` activity: what a run works with, from the worker's configuration."""

from temporalio import activity
from temporalio.exceptions import ApplicationError

from activities.conversations import Conversations
from activities.ports import Agents
from workflows.types.context import PrepareRequest, Setup
from workflows.types.input import InvalidInput


class PrepareActivities:
    """Looks agents up."""

    def __init__(self, agents: Agents, conversations: Conversations) -> None:
        self._agents = agents
        self._conversations = conversations

    @activity.defn(name="prepare")
    async def prepare(self, request: PrepareRequest) -> Setup:
        """Return the setup; what the starter got wrong is final."""
        try:
            setup = await self._agents.setup(request)
        except InvalidInput as error:
            raise ApplicationError(str(error), type="InvalidInput", non_retryable=True) from None
        self._conversations.keep_setup(setup)
        return setup
