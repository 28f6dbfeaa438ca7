"""One model call: its provider and the next ones of its tier, its heartbeats, its span, and its failure."""

import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import Protocol

from temporalio import activity
from temporalio.exceptions import ApplicationError

from orga.activities.calls.activity import heartbeats
from orga.activities.calls.attempts import retry_backoff_s
from orga.activities.ports import ModelError, ModelProvider, ModelRequest
from orga.activities.spans import model_span
from orga.activities.text.secrets import NO_SECRETS, KnownSecrets
from orga.workflows.types.input import LAST_TRY_S, OUT_OF_TIME, SLACK_S
from orga.workflows.types.messages import Reply
from orga.workflows.types.setup import Setup
from orga.workflows.types.text import clean_text, one_line
from orga.workflows.types.tiers import FailedOver
from orga.workflows.types.tool_calls.breakers import CIRCUIT_OPEN

OUT_OF_QUOTA = "OutOfQuota"
NOT_CONFIGURED = "ModelNotConfigured"

FAILOVER_KINDS = frozenset({CIRCUIT_OPEN, OUT_OF_QUOTA, NOT_CONFIGURED})
"""Kinds of failure that another model is asked after: this one was not asked, or answers to nobody who does not pay."""

CONTEXT_OVERFLOW = "ContextOverflow"

MAX_FAILOVER_CHARS = 300
MAX_LAST_FAILURE_CHARS = 800
MAX_EARLIER_FAILURE_CHARS = 120

ModelFailures = list[tuple[str, ModelError]]


async def first_reply(
    models: Sequence[str], ask: Callable[[str], Awaitable[Reply]], hidden: Callable[[str], str]
) -> Reply:
    """Return the first reply that can be had; it names who answered, and who gave way.

    Args:
        models: `provider:model`, in fallback order.
        ask: Asks one of them.
        hidden: A text without secrets.

    Raises:
        ModelError: The last one's, naming each that was asked.
    """
    failures: ModelFailures = []
    for name in models:
        try:
            reply = await ask(name)
        except ModelError as error:
            failures.append((name, error))
            if error.kind not in FAILOVER_KINDS:
                break
            activity.logger.warning("%s gives way: %s", name, _failure_text(error, hidden, MAX_FAILOVER_CHARS))
        else:
            return _with_failover(reply, name, failures, hidden) if failures else reply
    raise _combined_failure(failures, hidden)


def _with_failover(reply: Reply, name: str, failures: ModelFailures, hidden: Callable[[str], str]) -> Reply:
    after = [*(each for each, _ in failures[1:]), name]
    failed_over = tuple(
        FailedOver(before=before, after=then, why=_failure_text(error, hidden, MAX_FAILOVER_CHARS))
        for (before, error), then in zip(failures, after, strict=True)
    )
    provider, _, model = name.partition(":")
    return reply.with_differences(model=f"{provider}:{reply.model or model}", failed_over=failed_over)


def _combined_failure(failures: ModelFailures, hidden: Callable[[str], str]) -> ModelError:
    """Return the last failure, to be retried where any may pass: a fallback must not make less of a run."""
    last = failures[-1][1]
    if len(failures) == 1:
        return last
    tried = ", ".join(f"{name} ({_failure_text(error, hidden, MAX_EARLIER_FAILURE_CHARS)})" for name, error in failures)
    text = f"{one_line(clean_text(hidden(str(last))), MAX_LAST_FAILURE_CHARS)}; models tried, in order: {tried}"
    waits = [error.retry_after_s for _, error in failures if error.retryable]
    is_retryable = last.retryable if last.kind == CONTEXT_OVERFLOW else bool(waits)
    known = [wait for wait in waits if wait is not None]
    wait = min(known) if is_retryable and known and len(known) == len(waits) else None
    return ModelError(last.kind, text, retryable=is_retryable, retry_after_s=wait)


def _failure_text(error: ModelError, hidden: Callable[[str], str], most: int) -> str:
    return one_line(clean_text(f"{error.kind}: {hidden(str(error))}"), most)


TAIL_CHARS = 2_000
"""Characters of partial text in a heartbeat."""


class Models(Protocol):
    """Providers by model name."""

    def resolve(self, name: str) -> tuple[ModelProvider, str]:
        """Return the provider of `provider:model` and the model's name there.

        Raises:
            ValueError: The model cannot be called as this worker is configured.
        """
        ...


class ModelCalls:
    """Calls the model of a run. The providers' own retries are off: Temporal retries."""

    def __init__(self, models: Models, secrets: KnownSecrets = NO_SECRETS) -> None:
        self._models, self._secrets = models, secrets

    async def complete(self, setup: Setup, request: ModelRequest, began: float, models: Sequence[str]) -> Reply:
        """Return the reply of the first model that can be asked; partial text travels in the heartbeats.

        Args:
            setup: Of the run.
            request: Its `model` is filled in.
            began: When the activity did, by `time.monotonic()`.
            models: In fallback order.

        Raises:
            ApplicationError: With the failure's kind, final or with the delay that the provider asked for.
        """
        try:
            return await first_reply(models, partial(self._ask_one, setup, request), self._secrets.hidden)
        except ModelError as error:
            said = self._secrets.hidden(str(error))
            raise _activity_failure(error, said, _seconds_left(time.monotonic() - began)) from None

    async def _ask_one(self, setup: Setup, request: ModelRequest, name: str) -> Reply:
        provider, model = self._resolve_provider(name)
        messages = tuple(message.readable_by(name) for message in request.messages)
        asked, text = replace(request, model=model, messages=messages), _StreamTail(self._secrets)
        with model_span(setup.with_model(name), asked) as noted:
            async with heartbeats(text.details):
                reply = noted(self._secrets.hidden_in(await provider.complete(asked, text.add)))
        return reply.by(name) if setup.tiers else reply

    def _resolve_provider(self, name: str) -> tuple[ModelProvider, str]:
        try:
            return self._models.resolve(name)
        except ValueError as error:
            raise ModelError(NOT_CONFIGURED, str(error), retryable=False) from None


class _StreamTail:
    """The end of the text that has streamed in so far. It may end within a secret, and never begins within one."""

    def __init__(self, secrets: KnownSecrets) -> None:
        self._secrets = secrets
        self._kept_chars = TAIL_CHARS + secrets.longest
        self._text = ""
        self._chars = 0

    def add(self, piece: str) -> None:
        self._text += piece
        self._chars += len(piece)
        if len(self._text) > 2 * self._kept_chars:  # what is whole is hidden before the cut, which then hits no secret
            self._text = self._secrets.hidden(_with_joined_surrogates(self._text))[-self._kept_chars :]

    def details(self) -> dict[str, object]:
        text = self._secrets.hidden(clean_text(self._text), is_cut=True)
        return {"text": text[-TAIL_CHARS:], "chars": self._chars}


def _with_joined_surrogates(text: str) -> str:
    """Return the text with two halves of a character as one; a half whose other is yet to come stays."""
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")


def _activity_failure(error: ModelError, message: str, left: float | None) -> ApplicationError:
    """Turn a provider's failure into Temporal's words; a wish to wait becomes the delay, within what time is left.

    Where the next try would come after the run's clock has stopped, by that wish or by Temporal's own backoff, it is
    brought forward; the last one is final, so that a run which nobody answered says what it heard, not that time is up.
    """
    if not error.retryable:
        return ApplicationError(message, type=error.kind, non_retryable=True)
    wait = error.retry_after_s
    delay = None if wait is None else timedelta(seconds=wait)
    if left is not None and (retry_backoff_s() if wait is None else wait) > left:
        delay = timedelta(seconds=max(left - LAST_TRY_S, 0.0))
        if not delay:
            return ApplicationError(message, OUT_OF_TIME, type=error.kind, non_retryable=True, next_retry_delay=delay)
    return ApplicationError(message, type=error.kind, next_retry_delay=delay)


def _seconds_left(running_s: float) -> float | None:
    """Return the seconds left on the run's clock, which stops before the server gives up on this call.

    Reckoned from the server's own times, since this machine's clock may differ.
    """
    info = activity.info()
    if info.schedule_to_close_timeout is None:
        return None
    gives_up = info.scheduled_time + info.schedule_to_close_timeout
    return (gives_up - info.started_time).total_seconds() - running_s - SLACK_S - 1
