"""A webhook: each notification is one signed POST of JSON to the operator's address."""

import re
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

from pydantic_core import to_json

from orga.activities.adapters import http
from orga.activities.adapters.webhook.post import ReceiverAnswer, WebhookPost
from orga.activities.adapters.webhook.signature import SigningKey
from orga.activities.ports import RunKey
from orga.workflows.types.questions import Notification, NotifiedCall
from orga.workflows.types.text import escaped_line, full_field_text

WebhookFormat = Literal["json", "slack"]

MAX_TEXT_CHARS = 12_000
"""A longer text is not cut: it says less."""

TOO_LONG_TEXT = "something waits for a person, and is longer than a message may be; see orga inbox, run"
ID_CHARS = 1_000

_SLACK_ESCAPES = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;"})
"""What begins a link or calls a whole channel there; what the model wrote must not."""

_MENTION = re.compile(r"(?<![A-Za-z0-9])@(?=\w)")
"""As Mattermost reads it, `@all` and `@here` included; an address of mail is none."""

_STRUCK = re.compile(r"~(?=~)")


def webhook_body(notification: Notification, run: RunKey, link: str | None, form: WebhookFormat) -> bytes:
    """Return the body, empty fields left out; for Slack the text alone."""
    text = notification_line(notification, run, link)
    if form == "slack":
        return to_json({"text": without_markup(text), "mrkdwn": False})
    said: dict[str, Any] = {
        "text": text,
        **notification.model_dump(mode="json", exclude={"message_id"}, exclude_defaults=True),
        "workflow_id": run.workflow_id,
        "run_id": run.run_id,
    }
    return to_json({**said, "link": link} if link else said)


def notification_line(notification: Notification, run: RunKey, link: str | None) -> str:
    """Return who waits for what, and what decides it."""
    match notification.event:
        case "waiting":
            said = [f"{notification.agent} waits ({notification.kind}):", notification.question]
        case "ended":
            why = f"{notification.reason}: {notification.detail}" if notification.detail else notification.reason
            said = [f"{notification.agent} ended ({why})", full_field_text(run.workflow_id)]
        case "test":
            said = [f"{notification.agent}:", notification.question]
    said += [_call_text(call) for call in notification.calls]
    if notification.calls_left_out:
        said.append(f"and {notification.calls_left_out} more, see orga inbox")
    if notification.error:
        said.append(f"error: {notification.error}")
    if notification.expires_at:
        said.append(f"until {notification.expires_at}")
    if notification.commands:
        said.append("→ " + " | ".join(notification.commands))
    line = escaped_line(" ".join([*said, link] if link else said))
    return line if len(line) <= MAX_TEXT_CHARS else f"{TOO_LONG_TEXT} {full_field_text(run.workflow_id)[:ID_CHARS]}"


def without_markup(text: str) -> str:
    """Return what calls nobody, leads nowhere else than it says, and strikes nothing out.

    Slack reads no markup in it, but for links; Mattermost reads its Markdown.
    """
    return _STRUCK.sub("~ ", without_links(without_mentions(text))).translate(_SLACK_ESCAPES)


def without_mentions(text: str) -> str:
    """Return what calls nobody by a name behind an @."""
    return _MENTION.sub("\N{FULLWIDTH COMMERCIAL AT}", text)


def without_links(text: str) -> str:
    """Return what shows no link of Markdown under another name."""
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
    """Where to, and how. The address may hold a secret itself."""

    url: str = field(repr=False)
    key: SigningKey
    form: WebhookFormat = "json"


def no_link(workflow_id: str) -> str | None:
    """Return no page: nobody knows where the UI is."""
    return None


class WebhookNotifier:
    """Sends."""

    def __init__(
        self, settings: WebhookSettings, link: RunLink = no_link, transport: http.AsyncBaseTransport | None = None
    ) -> None:
        self._settings = settings
        self._link = link
        self._post = WebhookPost(settings.url, "the receiver of notifications", transport)

    async def deliver(self, notification: Notification, run: RunKey) -> None:
        """Send it; whatever is not 2xx counts as not taken."""
        self._post.check(await self.sent(notification, run))

    async def sent(self, notification: Notification, run: RunKey) -> ReceiverAnswer:
        """Send it, and return what the receiver answered.

        Raises:
            NotifyError: It did not answer.
        """
        content = webhook_body(notification, run, self._link(run.workflow_id), self._settings.form)
        return await self._post.sent(
            content, self._settings.key.headers(notification.message_id, int(time.time()), content)
        )

    async def close(self) -> None:
        """Close the connections."""
        await self._post.close()
