"""The `reason` activity: one model call."""

import time
from datetime import timedelta
from typing import Protocol

from temporalio import activity
from temporalio.exceptions import ApplicationError

from activities.beating import heartbeats
from activities.conversations import Conversations
from activities.log_context import log_iteration
from activities.ports import ModelError, ModelProvider, ModelRequest, Rebuilt, RunKey
from activities.replies import normalised
from activities.spans import model_span
from workflows.types.context import DigestMismatch, ReasonRequest
from workflows.types.input import SLACK_S
from workflows.types.messages import Reply
from workflows.types.text import clean_text

TAIL_CHARS = 2_000
"""Characters of partial text in a heartbeat."""

LAST_TRY_S = 3.0
"""A retry that would come after the run's clock has stopped is brought forward to this long before its end."""


class Models(Protocol):
    """Providers by model name."""

    def resolve(self, name: str) -> tuple[ModelProvider, str]:
        """Return the provider of `provider:model` and the model's name there.

        Raises:
            ValueError: The model cannot be called as this worker is configured.
        """
        ...


class ReasonActivities:
    """Model calls. The providers' own retries are off: Temporal retries."""

    def __init__(self, models: Models, conversations: Conversations) -> None:
        self._models = models
        self._conversations = conversations

    @activity.defn(name="reason")
    async def reason(self, request: ReasonRequest) -> Reply:
        """Return the model's reply; partial text travels in the heartbeats."""
        began = time.monotonic()
        log_iteration(request.iteration)
        info = activity.info()
        run = RunKey(info.workflow_id or "", info.workflow_run_id or "")
        try:
            context = await self._conversations.resolve(run, request)
            reply = await self._complete(context, request)
        except DigestMismatch as error:
            raise ApplicationError(str(error), type="DigestMismatch", non_retryable=True) from None
        except ModelError as error:
            raise _failure(error, _seconds_left(time.monotonic() - began)) from None
        reply = normalised(reply, context.messages)
        self._conversations.keep_reply(run, request.iteration, reply)
        return reply

    async def _complete(self, context: Rebuilt, request: ReasonRequest) -> Reply:
        provider, model = self._resolved(context.setup.model)
        asked, text = _model_request(model, context, request), _Tail()
        with model_span(context.setup, asked) as noted:
            async with heartbeats(text.details):
                return noted(await provider.complete(asked, text.add))

    def _resolved(self, name: str) -> tuple[ModelProvider, str]:
        try:
            return self._models.resolve(name)
        except ValueError as error:
            raise ApplicationError(str(error), type="ModelNotConfigured", non_retryable=True) from None


class _Tail:
    """The end of the text that has streamed in so far."""

    def __init__(self) -> None:
        self._text = ""
        self._chars = 0

    def add(self, piece: str) -> None:
        self._text = (self._text + piece)[-TAIL_CHARS:]
        self._chars += len(piece)

    def details(self) -> dict[str, object]:
        return {"text": clean_text(self._text), "chars": self._chars}


def _model_request(model: str, context: Rebuilt, request: ReasonRequest) -> ModelRequest:
    setup = context.setup
    return ModelRequest(
        model=model,
        system=(setup.instructions,) if setup.instructions else (),
        messages=context.messages,
        tools=setup.tools,
        temperature=setup.config.temperature,
        max_output_tokens=request.max_output_tokens or setup.config.max_output_tokens,
    )


def _failure(error: ModelError, left: float | None) -> ApplicationError:
    """Turn a provider's failure into Temporal's words; a wish to wait becomes the delay, within what time is left."""
    message, final = str(error), not error.retryable
    delay: timedelta | None = None
    if error.retry_after_s is not None and not final:
        wait = error.retry_after_s
        if left is not None and wait > left:
            final, wait = left <= LAST_TRY_S, max(left - LAST_TRY_S, 0.0)
        delay = timedelta(seconds=wait)
    return ApplicationError(message, type=error.kind, non_retryable=final, next_retry_delay=delay)


def _seconds_left(running_s: float) -> float | None:
    """Return the seconds left on the run's clock, which stops before the server gives up on this call.

    Reckoned from the server's own times, since this machine's clock may differ.
    """
    info = activity.info()
    if info.schedule_to_close_timeout is None:
        return None
    gives_up = info.scheduled_time + info.schedule_to_close_timeout
    return (gives_up - info.started_time).total_seconds() - running_s - SLACK_S - 1
