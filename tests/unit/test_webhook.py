"""The webhook: signed as the convention says, one attempt a call, and nothing of the address in an error."""

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from temporalio.exceptions import ApplicationError

from activities.adapters import http
from activities.adapters.webhook import sender
from activities.adapters.webhook.message import MAX_TEXT_CHARS, Format, body, in_one_line
from activities.adapters.webhook.sender import Webhook, WebhookSettings
from activities.adapters.webhook.signature import SigningKey
from activities.known_secrets import KnownSecrets
from activities.notify import LONGEST_WISH_S, NotifyActivities
from activities.ports import NotifyError, RunKey
from client.config import NotifyConfig
from client.notify_settings import SECRET as VARIABLE
from client.notify_settings import notify_settings
from tests.support.activities import Beats
from tests.support.model_http import Network
from tests.support.strategies import LAW, texts
from tests.support.webhook_receiver import SECRET, Received
from workflows.types.notifications import Notification, NotifiedCall

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


def a_webhook(network: Any, url: str = URL, form: Format = "json") -> Webhook:
    return Webhook(WebhookSettings(url, SigningKey.of(SECRET), form), transport=http.MockTransport(network))


async def failure(*answers: http.Response | Exception) -> NotifyError:
    with pytest.raises(NotifyError) as raised:
        await a_webhook(Network(list(answers))).deliver(ASKS, RUN)
    return raised.value


@pytest.mark.parametrize(
    ("secret", "message_id", "at", "content", "expected"),
    [
        pytest.param(
            "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
            "msg_p5jXN8AQM9LWM0D4loKWxJek",
            1614265330,
            b'{"test": 2432232314}',
            "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
            id="the example of the convention",
        ),
        pytest.param(
            "x" * 24,
            "msg_1",
            1,
            b"",
            "v1,7t5hboPvCECfgaCsglBEXRJgyBC3ISkBkxfS8H9snMQ=",
            id="a secret that is text, a body that is empty",
        ),
    ],
)
def test_signatures(secret: str, message_id: str, at: int, content: bytes, expected: str) -> None:
    assert SigningKey.of(secret).headers(message_id, at, content) == {
        "webhook-id": message_id,
        "webhook-timestamp": str(at),
        "webhook-signature": expected,
    }


@LAW
@given(st.binary(max_size=200), st.integers(0, 2**31), st.sampled_from(["id", "time", "body", "secret"]))
def test_whatever_is_changed_breaks_the_signature(content: bytes, at: int, changed: str) -> None:
    signed = SigningKey.of(SECRET).headers("msg_1", at, content)["webhook-signature"]
    other = SigningKey.of(SECRET + "x" * (changed == "secret")).headers(
        "msg_2" if changed == "id" else "msg_1",
        at + (changed == "time"),
        content + b"x" * (changed == "body"),
    )
    assert other["webhook-signature"] != signed


@pytest.mark.parametrize(
    ("config", "env", "says"),
    [
        pytest.param({"url": URL}, {}, "notify.url is set, but not ORGA_NOTIFY_SECRET", id="no secret"),
        pytest.param({"url": URL}, {VARIABLE: " "}, "but not ORGA_NOTIFY_SECRET", id="a blank secret"),
        pytest.param({"url": URL}, {VARIABLE: "short"}, "has fewer than 24 bytes; set it to", id="a short secret"),
        pytest.param({"url": URL}, {VARIABLE: "whsec_%%%%"}, "is not base64 behind whsec_", id="no base64"),
        pytest.param(
            {"url": "http://hooks.test/x"}, {VARIABLE: SECRET}, "has to begin with https://", id="in the clear"
        ),
    ],
)
def test_settings_that_cannot_be_used_are_refused_with_the_remedy(
    config: dict[str, Any], env: dict[str, str], says: str
) -> None:
    with pytest.raises(ValueError, match=r"notify|NOTIFY") as refused:
        notify_settings(NotifyConfig(**config), env)
    assert says in str(refused.value)
    assert "t0ken" not in str(refused.value)


@pytest.mark.parametrize(
    ("config", "is_told"),
    [
        pytest.param({}, False, id="nothing is configured"),
        pytest.param({"url": URL}, True, id="https"),
        pytest.param({"url": "http://127.0.0.1:8000/x"}, True, id="this machine"),
        pytest.param({"url": "http://hooks.test/x", "allow_http": True}, True, id="in the clear, as the operator says"),
    ],
)
def test_settings(config: dict[str, Any], is_told: bool) -> None:
    assert (notify_settings(NotifyConfig(**config), {VARIABLE: SECRET}) is not None) is is_told


def test_settings_do_not_show_their_secrets() -> None:
    shown = repr(notify_settings(NotifyConfig(url=URL), {VARIABLE: SECRET}))
    assert (SECRET in shown, URL in shown) == (False, False)


async def test_a_message_is_one_signed_post() -> None:
    network = Network([http.Response(200, text="ok")])
    before = int(time.time())
    await a_webhook(network).deliver(ASKS, RUN)
    [request] = network.requests
    received = Received(request.url.path, dict(request.headers), request.content)
    at = int(received.headers["webhook-timestamp"])
    assert (request.method, str(request.url), request.headers["content-type"]) == ("POST", URL, "application/json")
    assert before <= at <= time.time()
    assert received.headers.items() >= SigningKey.of(SECRET).headers("msg_1", at, received.body).items()
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
        pytest.param("ada@example.test pays 5 @ 3", "ada@example.test pays 5 @ 3", id="what is no mention"),
    ],
)
async def test_slack_gets_the_text_alone_and_nothing_in_it_is_markup(wrote: str, shown: str) -> None:
    """Else it would call everybody; a link could say one thing and lead to another."""
    network = Network([http.Response(200)])
    await a_webhook(network, form="slack").deliver(ASKS.model_copy(update={"question": wrote}), RUN)
    assert list(network.body()) == ["text"]
    assert shown in network.body()["text"]


def test_an_id_that_a_starter_chose_hides_nothing_in_the_text() -> None:
    run = RunKey("agent\u202e-1\x1b[2J\nx", "run-1")
    text = in_one_line(Notification(message_id="m", event="ended", agent="a", reason="completed"), run, None)
    assert text == "a ended (completed) agent\\u202e-1\\u001b[2J x"


@LAW
@given(st.lists(texts, max_size=4), texts, st.sampled_from(["json", "slack"]))
def test_the_text_is_one_bounded_line(words: list[str], question: str, form: Format) -> None:
    calls = tuple(NotifiedCall(tool="pay", arguments=word * 300) for word in words)
    asks = ASKS.model_copy(update={"calls": calls, "question": question * 100})
    text = Received("/", {}, body(asks, RUN, "https://ui.test/x", form)).message["text"]
    assert len(text.splitlines()) == 1
    assert len(text) <= MAX_TEXT_CHARS * (5 if form == "slack" else 1)


@pytest.mark.parametrize(
    ("answer", "kind", "retryable", "wish_s"),
    [
        pytest.param(http.Response(500), "ReceiverRefused", True, None, id="500"),
        pytest.param(http.Response(503, headers={"retry-after": "7"}), "ReceiverRefused", True, 7, id="503"),
        pytest.param(http.Response(429, headers={"retry-after": "9"}), "ReceiverRefused", True, 9, id="429"),
        pytest.param(http.Response(400), "ReceiverRefused", False, None, id="400"),
        pytest.param(http.Response(410), "ReceiverRefused", False, None, id="410"),
        pytest.param(
            http.Response(307, headers={"location": f"{URL}/2"}), "ReceiverRedirects", False, None, id="a redirect"
        ),
        pytest.param(http.Response(304), "ReceiverRedirects", False, None, id="304"),
        pytest.param(http.ConnectError(f"no {URL}"), "ReceiverUnreachable", True, None, id="nobody there"),
        pytest.param(http.RemoteProtocolError(f"no {URL}"), "ReceiverUnreachable", True, None, id="no HTTP"),
    ],
)
async def test_what_is_repeated(
    answer: http.Response | Exception, kind: str, retryable: bool, wish_s: float | None
) -> None:
    error = await failure(answer)
    assert (error.kind, error.retryable, error.retry_after_s) == (kind, retryable, wish_s)
    assert "hooks.test" not in str(error)
    assert "t0ken" not in str(error)


async def test_a_receiver_that_hangs_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    async def hangs(request: http.Request) -> http.Response:
        await asyncio.Event().wait()
        raise AssertionError

    monkeypatch.setattr(sender, "ATTEMPT_S", 0.05)
    with pytest.raises(NotifyError, match="no answer within"):
        await a_webhook(hangs).deliver(ASKS, RUN)


async def test_an_answer_that_never_ends_counts_by_its_status(monkeypatch: pytest.MonkeyPatch) -> None:
    read = 0

    async def endless() -> AsyncIterator[bytes]:
        nonlocal read
        while True:
            read += 1
            yield b"word " * 100
            await asyncio.sleep(0)

    async def trickles() -> AsyncIterator[bytes]:
        yield b"taken"
        await asyncio.Event().wait()

    monkeypatch.setattr(sender, "WORDS_S", 0.05)
    for content in (endless(), trickles()):
        answer = await a_webhook(Network([http.Response(200, content=content)])).sent(ASKS, RUN)
        assert (answer.status, len(answer.words) <= sender.MAX_ANSWER_BYTES) == (200, True)
    assert read <= 5


async def test_a_compressed_answer_is_not_unpacked() -> None:
    read: list[bool] = []

    async def bomb() -> AsyncIterator[bytes]:
        read.append(True)
        yield b""

    packed = http.Response(200, headers={"content-encoding": "gzip"}, content=bomb())
    assert await a_webhook(Network([packed])).sent(ASKS, RUN) == sender.Answer(200)
    assert read == []


class Answers:
    """A notifier that keeps what it was told, or fails."""

    def __init__(self, error: Exception | None = None) -> None:
        self.told: list[tuple[Notification, RunKey]] = []
        self._error = error

    async def deliver(self, notification: Notification, run: RunKey) -> None:
        """Keep it."""
        self.told.append((notification, run))
        if self._error:
            raise self._error


async def test_the_activity_hides_the_workers_secrets() -> None:
    notifier, secrets = Answers(), KnownSecrets.of_environment({"API_KEY": "sk-0123456789"})
    asks = ASKS.model_copy(update={"calls": (NotifiedCall(tool="refund", arguments='{"key":"sk-0123456789"}'),)})
    await Beats().run(NotifyActivities(notifier, secrets).notify, asks)
    [(told, run)] = notifier.told
    assert (told.calls[0].arguments, run.workflow_id) == ('{"key":"[redacted]"}', RUN.workflow_id)


@pytest.mark.parametrize(
    ("wish_s", "delay_s"),
    [
        pytest.param(None, None, id="no wish"),
        pytest.param(7.0, 7.0, id="a wish"),
        pytest.param(86_400.0, LONGEST_WISH_S, id="a wish for a day"),
    ],
)
async def test_a_failure_says_whether_and_when_to_repeat(wish_s: float | None, delay_s: float | None) -> None:
    notifier = Answers(NotifyError("it answered 503", kind="ReceiverRefused", retryable=True, retry_after_s=wish_s))
    with pytest.raises(ApplicationError) as raised:
        await Beats().run(NotifyActivities(notifier).notify, ASKS)
    delay = raised.value.next_retry_delay
    assert (raised.value.type, raised.value.non_retryable) == ("ReceiverRefused", False)
    assert (delay.total_seconds() if delay else None) == delay_s
