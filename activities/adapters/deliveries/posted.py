"""Channels that send one POST of JSON: a signed webhook, Telegram, Discord, Slack."""

import json
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from pydantic_core import to_json

from orga.activities.adapters.deliveries.short_text import outcome_heading, shortened_text, visible_answer
from orga.activities.adapters.webhook.post import ReceiverAnswer, WebhookPost
from orga.activities.adapters.webhook.sender import without_links, without_markup, without_mentions
from orga.activities.adapters.webhook.signature import SigningKey
from orga.activities.ports import RunKey
from orga.workflows.types.goals.deliveries import DeliveryRequest

TELEGRAM_CHARS = 3_000
DISCORD_CHARS = 1_800
SLACK_CHARS = 6_000
"""Characters of the message as people read it. Slack accepts 40,000, in which `&` counts as five."""

SUPPRESS_EMBEDS = 4
"""A flag of Discord: no previews of links in an answer."""

MessageForm = Callable[[DeliveryRequest, RunKey], dict[str, Any]]


@dataclass(frozen=True)
class PostedDelivery:
    """Sends an answer in the receiver's form. With a key it is signed, so the receiver can recognise a repetition."""

    post: WebhookPost
    form: MessageForm
    key: SigningKey | None = None

    @property
    def is_repeatable(self) -> bool:
        """True if messages are signed. Chat systems show a message as often as they get it."""
        return self.key is not None

    async def deliver(self, request: DeliveryRequest, run: RunKey) -> None:
        """Send the answer. Any status except 2xx counts as refused."""
        content = to_json(self.form(request, run))
        headers: dict[str, str] = {}
        if self.key is not None:
            headers = {**self.key.headers(request.key, int(time.time()), content), "idempotency-key": request.key}
        self.post.raise_for_status(_with_retry_after(await self.post.send(content, headers)))

    async def close(self) -> None:
        """Close the connections."""
        await self.post.close()


def webhook_form(request: DeliveryRequest, run: RunKey) -> dict[str, Any]:
    """Return all fields, with the answer unchanged."""
    said = request.model_dump(mode="json", exclude={"key", "name", "text"}, exclude_defaults=True)
    named = {"delivery": request.name, "goal_id": run.workflow_id, "run_id": run.run_id}
    return {"text": outcome_heading(request, run), "event": "goal_ended", **named, **said, "answer": request.text}


def telegram_form(chat_id: int | str) -> MessageForm:
    """Return the form of a message to a chat. It has no `parse_mode`, so nothing in it is markup."""

    def form(request: DeliveryRequest, run: RunKey) -> dict[str, Any]:
        text = shortened_text(without_mentions(_message_text(request, run)), TELEGRAM_CHARS, request.size, run)
        return {"chat_id": chat_id, "text": text, "link_preview_options": {"is_disabled": True}}

    return form


def discord_form(request: DeliveryRequest, run: RunKey) -> dict[str, Any]:
    """Return a message that mentions nobody, whatever its text contains."""
    text = shortened_text(without_links(_message_text(request, run)), DISCORD_CHARS, request.size, run)
    return {"content": text, "allowed_mentions": {"parse": []}, "flags": SUPPRESS_EMBEDS}


def slack_form(request: DeliveryRequest, run: RunKey) -> dict[str, Any]:
    """Return a message for incoming webhooks of Slack and Mattermost, without markup."""
    text = without_markup(shortened_text(_message_text(request, run), SLACK_CHARS, request.size, run))
    return {"text": text, "mrkdwn": False, "link_names": False, "unfurl_links": False, "unfurl_media": False}


def _message_text(request: DeliveryRequest, run: RunKey) -> str:
    return f"{outcome_heading(request, run)}\n\n{visible_answer(request)}"


def _with_retry_after(answer: ReceiverAnswer) -> ReceiverAnswer:
    """Return the answer with the retry delay that Telegram writes into its JSON."""
    if answer.status != 429 or answer.retry_after_s is not None:
        return answer
    try:
        match json.loads(answer.words):
            case {"parameters": {"retry_after": int(wish_s)}} if wish_s >= 0:
                return replace(answer, retry_after_s=float(wish_s))
            case _:
                return answer
    except (ValueError, RecursionError):
        return answer
