"""A webhook with a test's network, and a question that it sends."""

from typing import Any

from orga.activities.adapters import http
from orga.activities.adapters.webhook.post import SigningKey, WebhookFormat, WebhookNotifier, WebhookSettings
from orga.activities.ports import RunKey
from orga.workflows.types.questions import Notification, NotifiedCall
from tests.support.web.webhook_receiver import SECRET

URL = "https://hooks.test/services/t0ken-in-the-address"
RUN = RunKey("agent-1", "run-1")
ASKS = Notification(
    message_id="msg_1",
    event="waiting",
    agent="cashier",
    kind="approval",
    wait_id="approval-1",
    question="approve refund?",
    calls=(NotifiedCall(tool="refund", arguments='{"cents":900}', id="a1", approvers=("ada",)),),
    expires_at="2026-01-02T00:00:00+00:00",
    commands=("orga approve agent-1 a1", "orga deny agent-1 a1"),
)


def a_webhook(network: Any, url: str = URL, form: WebhookFormat = "json") -> WebhookNotifier:
    """Return a webhook that signs its messages and sends them into this network."""
    return WebhookNotifier(
        WebhookSettings(url, SigningKey.from_secret(SECRET), form), transport=http.MockTransport(network)
    )
