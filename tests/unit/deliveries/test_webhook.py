"""A webhook makes one attempt for each call, whatever its receiver answers. Errors never show the address."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from temporalio.exceptions import ApplicationError

from orga.activities.adapters import http
from orga.activities.adapters.webhook import post
from orga.activities.deliver import MAX_NOTIFICATION_RETRY_AFTER_S, NotifyActivities
from orga.activities.ports import NotifyError, RunKey
from orga.activities.text.secrets import KnownSecrets
from orga.workflows.types.questions import Notification, NotifiedCall
from tests.support.model.providers import Network
from tests.support.tools.activities import Beats
from tests.support.web.webhooks import ASKS, RUN, URL, a_webhook


async def failure(*answers: http.Response | Exception) -> NotifyError:
    with pytest.raises(NotifyError) as raised:
        await a_webhook(Network(list(answers))).deliver(ASKS, RUN)
    return raised.value


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
async def test_a_failure_is_classified_as_retryable_or_final(
    answer: http.Response | Exception, kind: str, retryable: bool, wish_s: float | None
) -> None:
    error = await failure(answer)
    assert (error.kind, error.retryable, error.retry_after_s) == (kind, retryable, wish_s)
    assert "hooks.test" not in str(error)
    assert "t0ken" not in str(error)


async def test_a_receiver_that_hangs_times_out(monkeypatch: pytest.MonkeyPatch) -> None:
    async def hangs(request: http.Request) -> http.Response:
        await asyncio.Event().wait()
        raise AssertionError

    monkeypatch.setattr(post, "ATTEMPT_S", 0.05)
    with pytest.raises(NotifyError, match="no answer within"):
        await a_webhook(hangs).deliver(ASKS, RUN)


async def test_an_endless_answer_counts_by_its_status(monkeypatch: pytest.MonkeyPatch) -> None:
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

    monkeypatch.setattr(post, "WORDS_S", 0.05)
    for content in (endless(), trickles()):
        answer = await a_webhook(Network([http.Response(200, content=content)])).send(ASKS, RUN)
        assert (answer.status, len(answer.words) <= post.MAX_ANSWER_BYTES) == (200, True)
    assert read <= 5


async def test_a_compressed_answer_is_not_unpacked() -> None:
    read: list[bool] = []

    async def bomb() -> AsyncIterator[bytes]:
        read.append(True)
        yield b""

    packed = http.Response(200, headers={"content-encoding": "gzip"}, content=bomb())
    assert await a_webhook(Network([packed])).send(ASKS, RUN) == post.ReceiverAnswer(200)
    assert read == []


class Answers:
    """A notifier that records notifications or fails."""

    def __init__(self, error: Exception | None = None) -> None:
        self.delivered: list[tuple[Notification, RunKey]] = []
        self._error = error

    async def deliver(self, notification: Notification, run: RunKey) -> None:
        """Record the notification."""
        self.delivered.append((notification, run))
        if self._error:
            raise self._error


async def test_the_activity_redacts_the_worker_s_secrets() -> None:
    notifier, secrets = Answers(), KnownSecrets.from_environment({"API_KEY": "sk-0123456789"})
    asks = ASKS.model_copy(update={"calls": (NotifiedCall(tool="refund", arguments='{"key":"sk-0123456789"}'),)})
    await Beats().run(NotifyActivities(notifier, secrets).notify, asks)
    [(notification, run)] = notifier.delivered
    assert (notification.calls[0].arguments, run.workflow_id) == ('{"key":"[redacted]"}', RUN.workflow_id)


@pytest.mark.parametrize(
    ("wish_s", "delay_s"),
    [
        pytest.param(None, None, id="no requested wait"),
        pytest.param(7.0, 7.0, id="a requested wait"),
        pytest.param(86_400.0, MAX_NOTIFICATION_RETRY_AFTER_S, id="a requested wait of a day"),
    ],
)
async def test_a_failure_states_whether_and_when_to_retry(wish_s: float | None, delay_s: float | None) -> None:
    notifier = Answers(NotifyError("it answered 503", kind="ReceiverRefused", retryable=True, retry_after_s=wish_s))
    with pytest.raises(ApplicationError) as raised:
        await Beats().run(NotifyActivities(notifier).notify, ASKS)
    delay = raised.value.next_retry_delay
    assert (raised.value.type, raised.value.non_retryable) == ("ReceiverRefused", False)
    assert (delay.total_seconds() if delay else None) == delay_s
