"""A webhook's message is one signed POST with one bounded line of text and no markup."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orga.activities.adapters import http
from orga.activities.adapters.webhook.post import (
    MAX_TEXT_CHARS,
    SigningKey,
    WebhookFormat,
    notification_line,
    webhook_body,
)
from orga.activities.ports import RunKey
from orga.workflows.types.questions import Notification, NotifiedCall
from tests.support.model.providers import Network
from tests.support.values.strategies import LAW, texts
from tests.support.web.webhook_receiver import SECRET, Received
from tests.support.web.webhooks import ASKS, RUN, URL, a_webhook


async def test_a_message_is_one_signed_post() -> None:
    network = Network([http.Response(200, text="ok")])
    before = int(time.time())
    await a_webhook(network).deliver(ASKS, RUN)
    [request] = network.requests
    received = Received(request.url.path, dict(request.headers), request.content)
    at = int(received.headers["webhook-timestamp"])
    assert (request.method, str(request.url), request.headers["content-type"]) == ("POST", URL, "application/json")
    assert before <= at <= time.time()
    assert received.headers.items() >= SigningKey.from_secret(SECRET).headers("msg_1", at, received.body).items()
    assert received.message == {
        "text": 'cashier waits (approval): approve refund? [refund {"cents":900} (ada)] '
        "until 2026-01-02T00:00:00+00:00 → orga approve agent-1 a1 | orga deny agent-1 a1",
        "event": "waiting",
        "kind": "approval",
        "agent": "cashier",
        "workflow_id": "agent-1",
        "run_id": "run-1",
        "wait_id": "approval-1",
        "question": "approve refund?",
        "calls": [{"tool": "refund", "arguments": '{"cents":900}', "id": "a1", "approvers": ["ada"]}],
        "expires_at": "2026-01-02T00:00:00+00:00",
        "commands": ["orga approve agent-1 a1", "orga deny agent-1 a1"],
    }


@pytest.mark.parametrize(
    ("wrote", "shown"),
    [
        pytest.param(
            "<!channel> & <https://evil.test|here>",
            "&lt;!channel&gt; &amp; &lt;https://evil.test|here&gt;",
            id="Slack's markup",
        ),
        pytest.param("@all (@here) _@channel_", "＠all (＠here) _＠channel_", id="Mattermost's mentions"),
        pytest.param("[approve](https://evil.test)", "[approve] (https://evil.test)", id="a link of Markdown"),
        pytest.param("![](https://evil.test/a.png)", "![] (https://evil.test/a.png)", id="a picture of Markdown"),
        pytest.param('["~~",90000,"~~~",9]', '["~ ~",90000,"~ ~ ~",9]', id="strikethrough in Mattermost"),
        pytest.param("ada@example.test pays 5 @ 3", "ada@example.test pays 5 @ 3", id="no mention"),
    ],
)
async def test_slack_gets_only_the_text_without_markup(wrote: str, shown: str) -> None:
    """Otherwise it could notify everyone, or show a link that leads elsewhere."""
    network = Network([http.Response(200)])
    await a_webhook(network, form="slack").deliver(ASKS.model_copy(update={"question": wrote}), RUN)
    assert network.body() == {"text": network.body()["text"], "mrkdwn": False}
    assert shown in network.body()["text"]


@pytest.mark.parametrize("form", ["json", "slack"])
def test_arguments_that_do_not_fit_are_replaced_by_size_and_digest(form: WebhookFormat) -> None:
    call = NotifiedCall(tool="refund", arguments_bytes=9_000, arguments_digest="sha256:ab", id="a1")
    sent = webhook_body(ASKS.model_copy(update={"calls": (call,)}), RUN, None, form)
    text = Received("/", {}, sent).message["text"]
    assert "[refund with 9000 bytes of arguments that do not fit here, sha256:ab]" in text


def test_an_id_chosen_by_a_starter_hides_nothing_in_the_text() -> None:
    run = RunKey("agent\u202e-1\x1b[2J\nx", "run-1")
    text = notification_line(Notification(message_id="m", event="ended", agent="a", reason="completed"), run, None)
    assert text == "a ended (completed) agent\\u202e-1\\u001b[2J\\nx"


@LAW
@given(st.lists(texts, max_size=4), texts, st.sampled_from(["json", "slack"]))
def test_the_text_is_one_bounded_line(words: list[str], question: str, form: WebhookFormat) -> None:
    calls = tuple(NotifiedCall(tool="pay", arguments=word * 300) for word in words)
    asks = ASKS.model_copy(update={"calls": calls, "question": question * 100})
    text = Received("/", {}, webhook_body(asks, RUN, "https://ui.test/x", form)).message["text"]
    assert len(text.splitlines()) == 1
    assert len(text) <= MAX_TEXT_CHARS * (5 if form == "slack" else 1)
