"""A webhook: each notification is one signed POST to the operator's address."""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime

from orga.activities.adapters import http
from orga.activities.adapters.models.retry_after import retry_after_s
from orga.activities.adapters.webhook.message import Format, body
from orga.activities.adapters.webhook.signature import SigningKey
from orga.activities.ports import NotifyError, RunKey
from orga.workflows.types.questions import Notification

ATTEMPT_S = 8.0
"""For the whole exchange: a receiver that trickles its answer ends here, too."""

MAX_ANSWER_BYTES = 2_000
"""That are read; more is of no use."""

WORDS_S = 1.0

RETRIED = frozenset({408, 409, 425, 429})
"""Statuses that may be others later, with every 5xx."""

TOO_MANY = 429

_HEADERS = {"content-type": "application/json", "user-agent": "orga", "accept-encoding": "identity"}

Link = Callable[[str], str | None]
"""Returns the page of a run in the Temporal UI, by its workflow id."""


@dataclass(frozen=True)
class WebhookSettings:
    """Where to, and how. The address may hold a secret itself."""

    url: str = field(repr=False)
    key: SigningKey
    form: Format = "json"


@dataclass(frozen=True)
class Answer:
    """What a receiver says; its words are no part of any history."""

    status: int
    words: str = ""
    retry_after_s: float | None = None


def no_link(workflow_id: str) -> str | None:
    """Return no page: nobody knows where the UI is."""
    return None


class Webhook:
    """Sends; its own retries are off: Temporal retries."""

    def __init__(
        self, settings: WebhookSettings, link: Link = no_link, transport: http.AsyncBaseTransport | None = None
    ) -> None:
        self._settings = settings
        self._link = link
        self._client = http.http_client(settings.url, transport=transport, silence_s=ATTEMPT_S)

    async def deliver(self, notification: Notification, run: RunKey) -> None:
        """Send it; whatever is not 2xx counts as not taken."""
        answer = await self.sent(notification, run)
        if not 200 <= answer.status < 300:
            raise _refused(answer)

    async def sent(self, notification: Notification, run: RunKey) -> Answer:
        """Send it, and return what the receiver answered.

        Raises:
            NotifyError: It did not answer.
        """
        content = body(notification, run, self._link(run.workflow_id), self._settings.form)
        headers = {**_HEADERS, **self._settings.key.headers(notification.message_id, int(time.time()), content)}
        try:
            async with asyncio.timeout(ATTEMPT_S):
                return await self._posted(content, headers)
        except TimeoutError:
            raise _unanswered(f"no answer within {ATTEMPT_S:g} s") from None
        except (http.HTTPError, http.InvalidURL) as error:  # its text names the address
            raise _unanswered(f"no connection ({type(error).__name__})") from None

    async def close(self) -> None:
        """Close the connections."""
        await self._client.aclose()

    async def _posted(self, content: bytes, headers: dict[str, str]) -> Answer:
        async with self._client.stream(
            "POST", self._settings.url, content=content, headers=headers, follow_redirects=False
        ) as response:
            wish_s = retry_after_s(response.headers, datetime.now(UTC), rate_limited=response.status_code == TOO_MANY)
            return Answer(response.status_code, await _words(response), wish_s)


async def _words(response: http.Response) -> str:
    """Return the beginning of the answer; the status is what counts, so it is not waited for long."""
    said = bytearray()
    if "content-encoding" in response.headers:  # nobody asked for one, and a few bytes of it can be gigabytes
        return ""
    try:
        async with asyncio.timeout(WORDS_S):
            async for piece in response.aiter_bytes():
                said += piece
                if len(said) >= MAX_ANSWER_BYTES:
                    break
    except (TimeoutError, http.HTTPError):
        pass
    return " ".join(bytes(said[:MAX_ANSWER_BYTES]).decode("utf-8", "replace").split())


def _unanswered(why: str) -> NotifyError:
    return NotifyError(f"the receiver of notifications: {why}", kind="ReceiverUnreachable", retryable=True)


def _refused(answer: Answer) -> NotifyError:
    status = answer.status
    if 300 <= status < 400:
        why = f"answered {status}, a redirect, which is not followed: give the address that it leads to"
        return NotifyError(f"the receiver of notifications {why}", kind="ReceiverRedirects", retryable=False)
    return NotifyError(
        f"the receiver of notifications answered {status}",
        kind="ReceiverRefused",
        retryable=status in RETRIED or status >= 500,
        retry_after_s=answer.retry_after_s,
    )
