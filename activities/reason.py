"""The `reason` activity: one model call."""

import time

from temporalio import activity

from orga.activities.conversations import Conversations
from orga.activities.known_secrets import NO_SECRETS, KnownSecrets
from orga.activities.model_calls import ModelCalls, Models
from orga.activities.model_context import model_context
from orga.activities.ports import ModelRequest, Rebuilt
from orga.activities.replies import calls_room, normalised
from orga.workflows.types.context import ReasonRequest, Setup
from orga.workflows.types.conversation import as_sent
from orga.workflows.types.messages import Reply
from orga.workflows.types.text import MEANING


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
        setup = context.setup
        reply = await self._calls.complete(setup, _model_request(context, request), began, setup.models_for())
        reply = normalised(reply, context.messages, calls_room(setup.config.max_output_tokens))
        self._conversations.keep_reply(run, request.iteration, reply)
        return reply


def _model_request(context: Rebuilt, request: ReasonRequest) -> ModelRequest:
    setup = context.setup
    return ModelRequest(
        model=setup.model,
        system=_system(setup),
        messages=as_sent(context.messages, setup.tools),
        tools=setup.tools,
        temperature=setup.config.temperature,
        max_output_tokens=request.max_output_tokens or setup.config.max_output_tokens,
        output_schema=setup.output_schema,
    )


def _system(setup: Setup) -> tuple[str, ...]:
    """Return the instructions; where there are tools, with what the lines around their results mean."""
    return tuple(filter(None, (setup.instructions, MEANING if setup.tools else "")))
