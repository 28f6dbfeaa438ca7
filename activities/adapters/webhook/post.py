"""Signs and sends one POST of JSON to an address that the operator configured, and interprets the answer.

The webhook for notifications sends such a POST for each question. Slack and similar systems get only its text.
"""

import asyncio
import hmac
import re
import time
from base64 import b64decode, b64encode
from binascii import Error
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from hashlib import sha256
from typing import Any, Literal

from pydantic_core import to_json

from orga.activities.adapters import http
from orga.activities.adapters.models.errors import retry_after_s
from orga.activities.ports import NotifyError, RunKey
from orga.workflows.types.questions import Notification, NotifiedCall
from orga.workflows.types.text import escaped_line, full_field_text

ATTEMPT_S = 8.0
"""Seconds for the whole exchange, so that a receiver whose answer trickles in is also cut off."""

MAX_ANSWER_BYTES = 2_000
"""Bytes of an answer that are read. More is of no use."""

WORDS_S = 1.0
"""Seconds to read the answer's text."""

RETRIED_STATUSES = frozenset({408, 409, 425, 429})
"""Statuses after which a later attempt may succeed, as after every 5xx."""

TOO_MANY_REQUESTS = 429

_HEADERS = {"content-type": "application/json", "user-agent": "orga", "accept-encoding": "identity"}


@dataclass(frozen=True)
class ReceiverAnswer:
    """A receiver's answer. Its text must not reach a history."""

    status: int
    words: str = ""
    retry_after_s: float | None = None


class WebhookPost:
    """Sends to one address, which may contain a secret. It does not retry, because Temporal retries."""

    def __init__(self, url: str, receiver: str, transport: http.AsyncBaseTransport | None = None) -> None:
        """Keep the address, and the receiver's name for errors."""
        self._url = url
        self._receiver = receiver
        self._client = http.http_client(url, transport=transport, silence_s=ATTEMPT_S)

    async def send(self, content: bytes, headers: Mapping[str, str]) -> ReceiverAnswer:
        """Send JSON, and return the receiver's answer. Raise NotifyError if it did not answer."""
        try:
            async with asyncio.timeout(ATTEMPT_S):
                return await self._post(content, {**_HEADERS, **headers})
        except TimeoutError:
            raise self._unanswered_error(f"no answer within {ATTEMPT_S:g} s", may_have_arrived=True) from None
        except (http.HTTPError, http.InvalidURL) as error:  # its text names the address, so it is not shown
            is_sure = isinstance(error, (http.ConnectError, http.InvalidURL, http.UnsupportedProtocol))
            why = f"no connection ({type(error).__name__})"
            raise self._unanswered_error(why, may_have_arrived=not is_sure) from None

    def raise_for_status(self, answer: ReceiverAnswer) -> None:
        """Raise NotifyError if the status is not 2xx."""
        status = answer.status
        if 200 <= status < 300:
            return
        if 300 <= status < 400:
            why = f"answered {status}, a redirect, which is not followed: give the address that it leads to"
            raise NotifyError(f"{self._receiver} {why}", kind="ReceiverRedirects", retryable=False)
        raise NotifyError(
            f"{self._receiver} answered {status}",
            kind="ReceiverRefused",
            retryable=status in RETRIED_STATUSES or status >= 500,
            retry_after_s=answer.retry_after_s,
            may_have_arrived=status not in http.REFUSAL_STATUSES,
        )

    async def close(self) -> None:
        await self._client.aclose()

    async def _post(self, content: bytes, headers: dict[str, str]) -> ReceiverAnswer:
        exchange = self._client.stream("POST", self._url, content=content, headers=headers, follow_redirects=False)
        async with exchange as response:
            is_limited = response.status_code == TOO_MANY_REQUESTS
            wish_s = retry_after_s(response.headers, datetime.now(UTC), rate_limited=is_limited)
            return ReceiverAnswer(response.status_code, await _answer_text(response), wish_s)

    def _unanswered_error(self, why: str, *, may_have_arrived: bool) -> NotifyError:
        text = f"{self._receiver}: {why}"
        return NotifyError(text, kind="ReceiverUnreachable", retryable=True, may_have_arrived=may_have_arrived)


async def _answer_text(response: http.Response) -> str:
    """Return the beginning of the answer, without a long wait, because only the status counts."""
    answer = bytearray()
    if "content-encoding" in response.headers:  # no request accepts one, and a few bytes can expand to gigabytes
        return ""
    try:
        async with asyncio.timeout(WORDS_S):
            async for piece in response.aiter_bytes():
                answer += piece
                if len(answer) >= MAX_ANSWER_BYTES:
                    break
    except (TimeoutError, http.HTTPError):
        pass
    return " ".join(bytes(answer[:MAX_ANSWER_BYTES]).decode("utf-8", "replace").split())


PREFIX = "whsec_"
"""The prefix of a base64 secret."""

MIN_KEY_BYTES = 24
"""The minimum of the Standard Webhooks convention. A shorter key could be guessed."""


@dataclass(frozen=True)
class SigningKey:
    """A key that only the sender and the receiver know.

    It signs by the Standard Webhooks convention: HMAC-SHA256 over id, time and body.
    """

    key: bytes = field(repr=False)

    @classmethod
    def from_secret(cls, secret: str) -> "SigningKey":
        """Read `whsec_` and base64, or else the text itself. Raise ValueError, without the secret, if it is no key."""
        try:
            is_base64 = secret.startswith(PREFIX)
            key = b64decode(secret.removeprefix(PREFIX), validate=True) if is_base64 else secret.encode()
        except Error:
            raise ValueError(f"is not base64 after {PREFIX}") from None
        if len(key) < MIN_KEY_BYTES:
            raise ValueError(f"has fewer than {MIN_KEY_BYTES} bytes")
        return cls(key)

    def headers(self, message_id: str, at: int, body: bytes) -> dict[str, str]:
        """Return the headers for a body. `at` is the time of sending, in seconds since the epoch."""
        signed = b".".join((message_id.encode(), str(at).encode(), body))
        signature = b64encode(hmac.new(self.key, signed, sha256).digest()).decode()
        return {"webhook-id": message_id, "webhook-timestamp": str(at), "webhook-signature": f"v1,{signature}"}


WebhookFormat = Literal["json", "slack"]

MAX_TEXT_CHARS = 12_000
"""Characters of a message. A longer text is never cut: a short message replaces it."""

_TOO_LONG_TEXT = "something waits for a person, and is longer than a message may be; see orga inbox, run"
ID_CHARS = 1_000

_SLACK_ESCAPES = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;"})
"""Characters that begin a link or mention a whole channel. The model's text must do neither."""

_MENTION = re.compile(r"(?<![A-Za-z0-9])@(?=\w)")
"""A mention in Mattermost, including `@all` and `@here`. A mail address is no mention."""

_STRUCK = re.compile(r"~(?=~)")


def webhook_body(notification: Notification, run: RunKey, link: str | None, form: WebhookFormat) -> bytes:
    """Return the body without empty fields. Slack gets only the text."""
    text = notification_line(notification, run, link)
    if form == "slack":
        return to_json({"text": without_markup(text), "mrkdwn": False})
    fields: dict[str, Any] = {
        "text": text,
        **notification.model_dump(mode="json", exclude={"message_id"}, exclude_defaults=True),
        "workflow_id": run.workflow_id,
        "run_id": run.run_id,
    }
    return to_json({**fields, "link": link} if link else fields)


def notification_line(notification: Notification, run: RunKey, link: str | None) -> str:
    """Return one line about what a run waits for, or how it ended, with the commands for people."""
    match notification.event:
        case "waiting":
            parts = [f"{notification.agent} waits ({notification.kind}):", notification.question]
        case "ended":
            why = f"{notification.reason}: {notification.detail}" if notification.detail else notification.reason
            parts = [f"{notification.agent} ended ({why})", full_field_text(run.workflow_id)]
        case "test":
            parts = [f"{notification.agent}:", notification.question]
    parts += [_call_text(call) for call in notification.calls]
    if notification.calls_left_out:
        parts.append(f"and {notification.calls_left_out} more, see orga inbox")
    if notification.error:
        parts.append(f"error: {notification.error}")
    if notification.expires_at:
        parts.append(f"until {notification.expires_at}")
    if notification.commands:
        parts.append("→ " + " | ".join(notification.commands))
    line = escaped_line(" ".join([*parts, link] if link else parts))
    return line if len(line) <= MAX_TEXT_CHARS else f"{_TOO_LONG_TEXT} {full_field_text(run.workflow_id)[:ID_CHARS]}"


def without_markup(text: str) -> str:
    """Return the text without mentions, hidden link targets and strike-through.

    Slack interprets only links in such a text. Mattermost interprets Markdown.
    """
    return _STRUCK.sub("~ ", without_links(without_mentions(text))).translate(_SLACK_ESCAPES)


def without_mentions(text: str) -> str:
    return _MENTION.sub("\N{FULLWIDTH COMMERCIAL AT}", text)


def without_links(text: str) -> str:
    """Return the text without Markdown links that show another text than their target."""
    return text.replace("](", "] (")


def _call_text(call: NotifiedCall) -> str:
    arguments = call.arguments
    if call.arguments_digest:
        arguments = f"with {call.arguments_bytes} bytes of arguments that do not fit here, {call.arguments_digest}"
    approvers = f" ({', '.join(call.approvers)})" if call.approvers else ""
    why = f" because {call.reason}" if call.reason else ""
    return f"[{call.tool} {arguments}{why}{approvers}]"


RunLink = Callable[[str], str | None]
"""Returns the page of a run in the Temporal UI, by its workflow id."""


@dataclass(frozen=True)
class WebhookSettings:
    """The address and the form of a webhook. The address may contain a secret."""

    url: str = field(repr=False)
    key: SigningKey
    form: WebhookFormat = "json"


def no_link(workflow_id: str) -> str | None:
    """Return None, because the address of the UI is unknown."""
    return None


class WebhookNotifier:
    def __init__(
        self, settings: WebhookSettings, link: RunLink = no_link, transport: http.AsyncBaseTransport | None = None
    ) -> None:
        self._settings = settings
        self._link = link
        self._post = WebhookPost(settings.url, "the receiver of notifications", transport)

    async def deliver(self, notification: Notification, run: RunKey) -> None:
        """Send the notification. Any status except 2xx counts as refused."""
        self._post.raise_for_status(await self.send(notification, run))

    async def send(self, notification: Notification, run: RunKey) -> ReceiverAnswer:
        """Send the notification, and return the receiver's answer. Raise NotifyError if it did not answer."""
        content = webhook_body(notification, run, self._link(run.workflow_id), self._settings.form)
        headers = self._settings.key.headers(notification.message_id, int(time.time()), content)
        return await self._post.send(content, headers)

    async def close(self) -> None:
        await self._post.close()
