"""A webhook: each notification is one signed POST of JSON to the operator's address."""

import re
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

from pydantic_core import to_json

from orga.activities.adapters import http
from orga.activities.adapters.webhook.post import ReceiverAnswer, SigningKey, WebhookPost
from orga.activities.ports import RunKey
from orga.workflows.types.questions import Notification, NotifiedCall
from orga.workflows.types.text import escaped_line, full_field_text

WebhookFormat = Literal["json", "slack"]

MAX_TEXT_CHARS = 12_000
"""Characters of a message. A shorter message replaces a longer text, which is never cut."""

TOO_LONG_TEXT = "something waits for a person, and is longer than a message may be; see orga inbox, run"
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
    """Return which run waits for what, and how people decide it."""
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
    return line if len(line) <= MAX_TEXT_CHARS else f"{TOO_LONG_TEXT} {full_field_text(run.workflow_id)[:ID_CHARS]}"


def without_markup(text: str) -> str:
    """Return the text without mentions, hidden link targets and strike-through.

    Slack interprets only links in it. Mattermost interprets Markdown.
    """
    return _STRUCK.sub("~ ", without_links(without_mentions(text))).translate(_SLACK_ESCAPES)


def without_mentions(text: str) -> str:
    """Return the text without `@` mentions."""
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
        return await self._post.send(
            content, self._settings.key.headers(notification.message_id, int(time.time()), content)
        )

    async def close(self) -> None:
        await self._post.close()
