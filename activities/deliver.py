"""The `deliver` and `deliver_notification` activities: one attempt each. Temporal makes the next attempts."""

from collections.abc import Mapping
from datetime import timedelta
from typing import Protocol

from temporalio import activity
from temporalio.exceptions import ApplicationError

from orga.activities.calls.activity import (
    attempt_may_have_acted,
    current_run_key,
    heartbeats,
    record_attempt_without_effect,
    stops_as_failures,
)
from orga.activities.ports import Notifier, NotifyError, RunKey
from orga.activities.text.secrets import NO_SECRETS, KnownSecrets
from orga.workflows.types.goals.deliveries import MAY_HAVE_ARRIVED, DeliveryRequest
from orga.workflows.types.names import DELIVER, NOTIFY
from orga.workflows.types.questions import Notification

MAX_RETRY_AFTER_S = 60.0
"""The longest delay that a receiver can ask for. The goal's result waits that long."""

OTHER_WORKER_DELAY_S = 2.0
"""Delay before the next attempt, which another worker may take."""

RETRY_DELAYS_S = (5.0, 15.0, 30.0, 60.0)
"""Delays after the first failed attempt, the second, and so on, if the receiver names no delay."""

NOT_SENT_AGAIN = "it may have arrived, and is not sent twice"


class DeliveryChannel(Protocol):
    """A receiver of answers. Each call is one attempt."""

    @property
    def is_repeatable(self) -> bool:
        """True if the receiver recognises a repetition. Otherwise an answer that may have arrived is not sent again."""
        ...

    async def deliver(self, request: DeliveryRequest, run: RunKey) -> None:
        """Make one attempt. Raise NotifyError if the receiver did not accept the answer."""
        ...


class DeliverActivities:
    """Delivers answers through the worker's channels, without the secrets that the worker knows."""

    def __init__(self, channels: Mapping[str, DeliveryChannel], secrets: KnownSecrets = NO_SECRETS) -> None:
        self._channels = channels
        self._secrets = secrets

    @activity.defn(name=DELIVER)
    async def deliver(self, request: DeliveryRequest) -> int:
        """Return the number of the attempt that delivered the answer."""
        is_unsure = attempt_may_have_acted()
        try:
            with stops_as_failures():
                await self._deliver(request, is_unsure=is_unsure)
        except NotifyError as error:
            if not is_unsure and not error.may_have_arrived:
                record_attempt_without_effect()
            raise _delivery_failure(error) from None
        return activity.info().attempt

    async def _deliver(self, request: DeliveryRequest, *, is_unsure: bool) -> None:
        channel = self._channels.get(request.name)
        if channel is None:
            text = f"this worker has no delivery {request.name!r}"  # another worker of the task queue may have it
            raise NotifyError(text, kind="UnknownDelivery", retryable=True, retry_after_s=OTHER_WORKER_DELAY_S)
        if is_unsure and not channel.is_repeatable:
            raise _unsure_delivery_error("an attempt was cut off")
        try:
            async with heartbeats():
                await channel.deliver(self._secrets.redact_record(request), current_run_key())
        except NotifyError as error:
            if channel.is_repeatable or not error.may_have_arrived:
                raise
            raise _unsure_delivery_error(str(error)) from None


def _unsure_delivery_error(why: str) -> NotifyError:
    return NotifyError(f"{why}; {NOT_SENT_AGAIN}", kind=MAY_HAVE_ARRIVED, retryable=False, may_have_arrived=True)


def _delivery_failure(error: NotifyError) -> ApplicationError:
    attempt = activity.info().attempt
    usual_s = RETRY_DELAYS_S[min(attempt, len(RETRY_DELAYS_S)) - 1]
    delay_s = usual_s if error.retry_after_s is None else min(error.retry_after_s, MAX_RETRY_AFTER_S)
    return _attempt_failure(error, timedelta(seconds=delay_s), attempt)


def _attempt_failure(error: NotifyError, delay: timedelta | None, *details: int) -> ApplicationError:
    is_final = not error.retryable
    return ApplicationError(str(error), *details, type=error.kind, non_retryable=is_final, next_retry_delay=delay)


MAX_NOTIFICATION_RETRY_AFTER_S = 300.0
"""The longest delay that a receiver of notifications can ask for."""


class NotifyActivities:
    """Sends notifications to people, without the secrets that the worker knows."""

    def __init__(self, notifier: Notifier, secrets: KnownSecrets = NO_SECRETS) -> None:
        self._notifier = notifier
        self._secrets = secrets

    @activity.defn(name=NOTIFY)
    async def notify(self, notification: Notification) -> None:
        try:
            with stops_as_failures():
                async with heartbeats():
                    await self._notifier.deliver(self._secrets.redact_record(notification), current_run_key())
        except NotifyError as error:
            delay_s = error.retry_after_s
            delay = None if delay_s is None else timedelta(seconds=min(delay_s, MAX_NOTIFICATION_RETRY_AFTER_S))
            raise _attempt_failure(error, delay) from None
