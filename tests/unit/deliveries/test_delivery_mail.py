"""Answers by e-mail, sent to a local mail server."""

import asyncio
import ssl
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from orga.activities.adapters.deliveries import targets
from orga.activities.adapters.deliveries.targets import EmailDelivery, MailSettings
from orga.activities.ports import NotifyError, RunKey
from orga.workflows.types.goals.deliveries import DeliveryRequest
from tests.support.hold import PATIENCE_S, wait_until
from tests.support.web.mail_server import GONE, OK, PASSWORD, USER, MailServer, contexts, mail_server

RUN = RunKey("goal-1", "run-1")
ASKED = DeliveryRequest(
    name="boss",
    key="goal_k",
    agent="default",
    goal="find out",
    reason="completed",
    confidence=0.81,
    text="Grüße\n.\nBcc: x@evil.test\n",
    size=27,
)


def to(server: MailServer, **fields: Any) -> EmailDelivery:
    known = MailSettings("127.0.0.1", server.port, "none", "orga@here.test", ("ada@there.test", "bo@there.test"))
    return EmailDelivery(replace(known, **fields))


async def refusal(server: MailServer, **fields: Any) -> NotifyError:
    with pytest.raises(NotifyError) as refused:
        await to(server, **fields).deliver(ASKED, RUN)
    return refused.value


async def has_ended(server: MailServer) -> bool:
    return await asyncio.to_thread(server.left.acquire, timeout=PATIENCE_S)


async def test_a_message_has_the_answer_and_the_id_of_the_delivery() -> None:
    with mail_server() as server:
        for _ in range(2):
            await to(server).deliver(ASKED, RUN)
    first, second = server.received
    assert (first["From"], first["To"]) == ("orga@here.test", "ada@there.test, bo@there.test")
    assert first["Subject"] == "completed: find out"
    assert first["Message-ID"] == second["Message-ID"] == "<goal_k@here.test>"
    assert not to(server).is_repeatable  # the server keeps both messages
    assert server.envelopes[0] == ("orga@here.test", ["ada@there.test", "bo@there.test"])
    body = first.get_content().replace("\r\n", "\n")
    assert body == f"find out: completed, confidence 0.81 [goal-1]\n\n{ASKED.text}\n"
    assert (first.get_content_type(), first["Bcc"]) == ("text/plain", None)


ENCODED = [
    "=?utf-8?q?a=0D=0AReply-To:_evil@evil.test?=",
    "=?utf-8?b?YQ0KQ29udGVudC1UeXBlOiB0ZXh0L2h0bWwNCg0KPGI+Zm9yZ2Vk?=",
    "=?utf-8?q?a?= =?utf-8?q?=0ABcc:_all@evil.test?=",
    "==?utf-8?q?=0AX:_y?=",
    "=?utf-8?q?=ff?=",
]
"""Words that a reader of headers decodes (RFC 2047), including line breaks."""


@pytest.mark.parametrize("words", ["x\nBcc: all@evil.test", "x\r\n\r\nbody", "x\u2028y", "\x00", "ü" * 300, *ENCODED])
async def test_no_text_of_a_goal_can_forge_a_header(words: str) -> None:
    asked = ASKED.model_copy(update={"goal": words, "detail": words})
    with mail_server() as server:
        await to(server).deliver(asked, RUN)
    [message] = server.received
    assert set(message) == {
        *("Subject", "From", "To", "Date", "Message-ID", "Auto-Submitted"),
        *("MIME-Version", "Content-Type", "Content-Transfer-Encoding"),
        *({"X-Peer", "X-MailFrom", "X-RcptTo"} & set(message)),  # added by the server
    }
    assert server.envelopes[0][1] == ["ada@there.test", "bo@there.test"]
    assert message.get_content_type() == "text/plain"
    assert "forged" not in str(message["Subject"])
    assert message.get_content().replace("\r\n", "\n").endswith(f"\n\n{ASKED.text}\n")


async def test_it_logs_in_with_starttls_and_tls(tmp_path: Path) -> None:
    shown, trusted = contexts(tmp_path)
    known = {"host": "localhost", "username": USER, "password": PASSWORD, "trust": trusted}
    with mail_server(starttls=shown, needs_login=True) as server:
        await to(server, security="starttls", **known).deliver(ASKED, RUN)
        error = await refusal(server, security="starttls", **{**known, "password": "another"})
    assert len(server.received) == 1
    assert (str(error), error.retryable) == ("the mail server answered 535 to the login", False)
    with mail_server(tls=shown) as server:
        await to(server, security="tls", host="localhost", trust=trusted).deliver(ASKED, RUN)
    assert len(server.received) == 1


async def test_a_server_without_a_trusted_certificate_gets_nothing(tmp_path: Path) -> None:
    shown, _ = contexts(tmp_path)
    with mail_server(starttls=shown) as server:
        error = await refusal(server, security="starttls", host="localhost", trust=ssl.create_default_context())
    assert (server.received, error.kind) == ([], "ReceiverUnreachable")


async def test_a_server_without_encryption_gets_nothing_if_it_is_required() -> None:
    with mail_server() as server:
        error = await refusal(server, security="starttls")
    assert (server.received, error.retryable) == ([], False)
    assert "STARTTLS" in str(error)


@pytest.mark.parametrize(
    ("answer", "retryable"),
    [
        pytest.param("451 try again later", True, id="temporary"),
        pytest.param("552 no room for secret-words", False, id="permanent"),
    ],
)
async def test_a_refusal_of_the_server_is_classified(answer: str, retryable: bool) -> None:
    with mail_server(answer, OK) as server:
        error = await refusal(server)
        assert (error.kind, error.retryable) == ("ReceiverRefused", retryable)
        assert str(error) == f"the mail server answered {answer[:3]} to the message"


async def test_refused_recipients_are_counted_and_the_others_get_one_message() -> None:
    with mail_server(refused={"bo@there.test": "550 who?"}) as server:
        error = await refusal(server)
    assert str(error) == "the mail server refused 1 of 2 recipients and accepted the others"
    assert (error.retryable, error.may_have_arrived) == (False, True)
    assert [envelope[1] for envelope in server.envelopes] == [["ada@there.test"]]
    with mail_server(refused={"ada@there.test": "450 busy", "bo@there.test": "450 busy"}) as server:
        error = await refusal(server)
    assert (str(error), error.retryable) == ("the mail server answered 450 to all recipients", True)


@pytest.mark.parametrize("bye", ["421 too many connections", "500 what?"])
async def test_the_final_reply_of_a_server_does_not_change_an_accepted_message(bye: str) -> None:
    with mail_server(bye=bye) as server:
        await to(server).deliver(ASKED, RUN)
    assert len(server.received) == 1


async def test_a_lost_reply_after_the_message_leaves_the_arrival_unknown() -> None:
    with mail_server(GONE) as server:
        error = await refusal(server)
    assert (error.kind, error.may_have_arrived, len(server.received)) == ("ReceiverUnreachable", True, 1)


@pytest.mark.parametrize(
    ("stands_at", "within_s", "may_have_arrived"),
    [
        pytest.param("MAIL", 0.3, False, id="a message that was not sent is not sent later"),
        pytest.param("DATA", 3.0, True, id="a sent message may have arrived"),
    ],
)
async def test_a_slow_server_times_out(
    monkeypatch: pytest.MonkeyPatch, stands_at: str, within_s: float, may_have_arrived: bool
) -> None:
    """The thread of the exchange continues and cannot be stopped."""
    monkeypatch.setattr(targets, "ATTEMPT_S", within_s)
    monkeypatch.setattr(targets, "SILENCE_S", PATIENCE_S)
    with mail_server(stands_at=stands_at) as server:
        error = await refusal(server)
        server.go.set()
        assert await has_ended(server)
    assert (error.retryable, error.may_have_arrived) == (True, may_have_arrived)
    assert len(server.received) == may_have_arrived


async def test_mails_that_wait_too_long_are_not_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    with mail_server(stands_at="DATA") as server:
        channel = to(server)
        first = [asyncio.create_task(channel.deliver(ASKED, RUN)) for _ in range(targets.MAX_CONCURRENT_SENDS)]

        async def are_given() -> bool:
            return server.tried == targets.MAX_CONCURRENT_SENDS

        await wait_until(are_given)
        monkeypatch.setattr(targets, "ATTEMPT_S", 0.1)
        with pytest.raises(NotifyError) as waited:
            await channel.deliver(ASKED, RUN)
        server.go.set()
        await asyncio.gather(*first)
    assert (waited.value.retryable, waited.value.may_have_arrived) == (True, False)
    assert len(server.received) == targets.MAX_CONCURRENT_SENDS


async def test_an_unreachable_server_is_a_retryable_failure() -> None:
    with mail_server() as server:
        pass
    error = await refusal(server)
    assert (error.kind, error.retryable, error.may_have_arrived) == ("ReceiverUnreachable", True, False)
    assert "127.0.0.1" not in str(error)
