"""The `reason` activity: one model call."""

import time

from temporalio import activity

from orga.activities.gate.fitted_arguments import with_fitted_arguments
from orga.activities.models.conversations import Conversations
from orga.activities.models.model_calls import ModelCalls, Models
from orga.activities.models.model_context import model_context, model_request
from orga.activities.replies import calls_byte_limit, normalised_reply
from orga.activities.text.secrets import NO_SECRETS, KnownSecrets
from orga.workflows.types.context import ReasonRequest
from orga.workflows.types.messages import Reply


class ReasonActivities:
    """Reasoning steps."""

    def __init__(self, models: Models, conversations: Conversations, secrets: KnownSecrets = NO_SECRETS) -> None:
        self._calls = ModelCalls(models, secrets)
        self._conversations = conversations

    @activity.defn(name="reason")
    async def reason(self, request: ReasonRequest) -> Reply:
        """Return the model's reply."""
        began = time.monotonic()
        run, context = await model_context(self._conversations, request)
        setup, asked = context.setup, model_request("reason", context, request)
        reply = await self._calls.complete(setup, asked, began, setup.models_for())
        reply = normalised_reply(reply, context.messages, calls_byte_limit(setup.config.max_output_tokens))
        reply = with_fitted_arguments(reply, setup.tools)
        self._conversations.keep_reply(run, request.iteration, reply)
        return reply
