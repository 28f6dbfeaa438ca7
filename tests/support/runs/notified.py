"""Runs that notify a receiver of their questions, and the traces in their histories."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from temporalio.client import Client

from orga.activities.adapters.webhook.post import SigningKey, WebhookNotifier, WebhookSettings
from orga.activities.ports import Tool
from orga.client.testing.script import Step
from orga.testing import answers, calls
from orga.workflows.types.names import NOTIFY
from orga.workflows.types.setup import Setup
from tests.support.runs.loop import WORKER_FACTS, Loop, Ran, a_loop
from tests.support.web.webhook_receiver import SECRET, Received, Receiver

NOTIFIES = WORKER_FACTS.model_copy(update={"notify": ("approval", "escalation", "budget")})
NOTIFIES_ALL = WORKER_FACTS.model_copy(update={"notify": ("approval", "escalation", "budget", "ended")})
PAYS: Sequence[Step] = [calls("pay", arguments={"amount": 7}), answers()]


def a_webhook(receiver: Receiver) -> WebhookNotifier:
    """Return a webhook that signs, and knows a user interface."""
    settings = WebhookSettings(receiver.url, SigningKey.from_secret(SECRET))
    return WebhookNotifier(settings, lambda workflow_id: f"http://ui/{workflow_id}")


@asynccontextmanager
async def a_notifying_loop(
    client: Client,
    receiver: Receiver,
    *tools: Tool,
    steps: Sequence[Step] = PAYS,
    setup: Setup = NOTIFIES,
    **options: Any,
) -> AsyncGenerator[Loop]:
    """Run a worker that notifies the receiver."""
    webhook = a_webhook(receiver)
    try:
        async with a_loop(client, steps, *tools, setup=setup, notifier=webhook, **options) as loop:
            yield loop
    finally:
        await webhook.close()


def notify_activity_ids(ran: Ran) -> list[str]:
    """Return the ids of the notification activities."""
    scheduled = [e.activity_task_scheduled_event_attributes for history in ran.histories for e in history.events]
    return [each.activity_id for each in scheduled if each.activity_type.name == NOTIFY]


def history_bytes(ran: Ran) -> bytes:
    """Return all bytes of the histories."""
    return b"".join(event.SerializeToString() for history in ran.histories for event in history.events)


def failures(ran: Ran) -> list[dict[str, Any]]:
    """Return the journal entries about messages that nobody took."""
    return [entry.data for entry in ran.journal if entry.event == "NotificationFailed"]


def is_signed(received: Received) -> bool:
    """Return whether a request has the right signature for its id, time and body."""
    at = int(received.headers["webhook-timestamp"])
    expected = SigningKey.from_secret(SECRET).headers(received.message_id, at, received.body)
    return expected["webhook-signature"] == received.headers["webhook-signature"]
