"""A webhook: each notification is one signed POST to the operator's address."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from orga.activities.adapters import http
from orga.activities.adapters.webhook.message import Format, body
from orga.activities.adapters.webhook.post import Answer, Post
from orga.activities.adapters.webhook.signature import SigningKey
from orga.activities.ports import RunKey
from orga.workflows.types.questions import Notification

Link = Callable[[str], str | None]
"""Returns the page of a run in the Temporal UI, by its workflow id."""


@dataclass(frozen=True)
class WebhookSettings:
    """Where to, and how. The address may hold a secret itself."""

    url: str = field(repr=False)
    key: SigningKey
    form: Format = "json"


def no_link(workflow_id: str) -> str | None:
    """Return no page: nobody knows where the UI is."""
    return None


class Webhook:
    """Sends."""

    def __init__(
        self, settings: WebhookSettings, link: Link = no_link, transport: http.AsyncBaseTransport | None = None
    ) -> None:
        self._settings = settings
        self._link = link
        self._post = Post(settings.url, "the receiver of notifications", transport)

    async def deliver(self, notification: Notification, run: RunKey) -> None:
        """Send it; whatever is not 2xx counts as not taken."""
        self._post.check(await self.sent(notification, run))

    async def sent(self, notification: Notification, run: RunKey) -> Answer:
        """Send it, and return what the receiver answered.

        Raises:
            NotifyError: It did not answer.
        """
        content = body(notification, run, self._link(run.workflow_id), self._settings.form)
        return await self._post.sent(
            content, self._settings.key.headers(notification.message_id, int(time.time()), content)
        )

    async def close(self) -> None:
        """Close the connections."""
        await self._post.close()
