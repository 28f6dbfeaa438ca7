"""The `deliver_notification` activity: one attempt to tell people outside; Temporal makes the next ones."""

from datetime import timedelta

from temporalio import activity
from temporalio.exceptions import ApplicationError

from orga.activities.beating import heartbeats
from orga.activities.known_secrets import NO_SECRETS, KnownSecrets
from orga.activities.own_run import own_run
from orga.activities.ports import Notifier, NotifyError
from orga.activities.shutdown import told_of_shutdown
from orga.workflows.types.names import NOTIFY
from orga.workflows.types.questions import Notification

LONGEST_WISH_S = 300.0
"""Of a receiver that asks to be left alone for a while."""


class NotifyActivities:
    """Notifications through an injected notifier; no secret that the worker knows leaves it in one."""

    def __init__(self, notifier: Notifier, secrets: KnownSecrets = NO_SECRETS) -> None:
        self._notifier = notifier
        self._secrets = secrets

    @activity.defn(name=NOTIFY)
    async def notify(self, notification: Notification) -> None:
        """Deliver it."""
        try:
            with told_of_shutdown():
                async with heartbeats(lambda: None):
                    await self._notifier.deliver(self._secrets.hidden_in(notification), own_run())
        except NotifyError as error:
            raise _failure(error) from None


def _failure(error: NotifyError) -> ApplicationError:
    wish_s = error.retry_after_s
    delay = None if wish_s is None else timedelta(seconds=min(wish_s, LONGEST_WISH_S))
    return ApplicationError(str(error), type=error.kind, non_retryable=not error.retryable, next_retry_delay=delay)
