"""Each channel is tested with a local server that speaks its protocol."""

import asyncio
import hmac
import os
from base64 import b64encode
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from orga.activities.adapters.deliveries.targets import FileDelivery, shortened_text
from orga.activities.adapters.rules import Rules
from orga.activities.adapters.tools.root import FileRoot
from orga.activities.deliver import DeliveryChannel
from orga.activities.knowledge.ports import KnowledgeError
from orga.activities.ports import NotifyError, RunKey
from orga.client.config.delivery_settings import delivery_channels
from orga.client.config.sections import DeliveryConfig
from orga.workflows.types.goals.deliveries import DeliveryRequest
from orga.workflows.types.knowledge import Behalf, Reader
from tests.support.tools.held import PATIENCE_S, Held
from tests.support.values.shelf import Shelf, a_fact
from tests.support.web.webhook_receiver import SECRET, Receiver, Says, webhook_receiver

RUN = RunKey("goal-1", "run-1")
TOKEN = "12345:planted-bot-token"
HOSTILE = "@everyone <!channel> <@123> [your bank](https://evil.test) <script> ping @ada and a@b.test"


def asked(text: str = "the answer", **fields: Any) -> DeliveryRequest:
    known: dict[str, Any] = {"agent": "default", "goal": "find out", "reason": "completed", "confidence": 0.81}
    own: dict[str, Any] = {"name": "x", "key": "goal_k", "text": text, "size": len(text)}
    return DeliveryRequest(**{**known, **own, **fields})


def a_channel(
    env: dict[str, str] | None = None, root: Path | None = None, shelf: Shelf | None = None, **config: Any
) -> DeliveryChannel:
    checked = DeliveryConfig.model_validate(config, extra="forbid")
    store = (shelf or Shelf()).as_store
    [channel] = delivery_channels(
        {"x": checked}, lambda: FileRoot(root or Path.cwd()), lambda: store, env or {}
    ).values()
    return channel


def a_chat(kind: str, receiver: Receiver) -> DeliveryChannel:
    if kind == "telegram":
        base = receiver.url.partition("/hook/")[0]
        return a_channel({"BOT": TOKEN}, kind=kind, token_from="BOT", chat_id=-100, url=base)
    return a_channel({"URL": receiver.url}, kind=kind, url_from="URL")


def received_text(receiver: Receiver) -> str:
    [received] = receiver.received
    return received.message.get("text") or received.message["content"]


async def test_a_webhook_is_signed_and_has_an_idempotency_key() -> None:
    with webhook_receiver() as receiver:
        channel = a_channel({"S": SECRET}, kind="webhook", url=receiver.url, secret_from="S")
        await channel.deliver(asked(HOSTILE, detail="one line"), RUN)
    [received] = receiver.received
    signed = f"{received.headers['webhook-id']}.{received.headers['webhook-timestamp']}.".encode() + received.body
    expected = b64encode(hmac.new(SECRET.encode(), signed, sha256).digest()).decode()
    assert received.headers["webhook-signature"] == f"v1,{expected}"
    assert (received.headers["idempotency-key"], received.headers["webhook-id"]) == ("goal_k", "goal_k")
    assert channel.is_repeatable
    assert received.message == {
        "text": "find out: completed (one line), confidence 0.81 [goal-1]",
        "event": "goal_ended",
        "delivery": "x",
        "goal_id": "goal-1",
        "run_id": "run-1",
        "agent": "default",
        "goal": "find out",
        "reason": "completed",
        "detail": "one line",
        "confidence": 0.81,
        "size": len(HOSTILE),
        "answer": HOSTILE,
    }


async def test_telegram_gets_plain_text_without_mentions() -> None:
    with webhook_receiver() as receiver:
        channel = a_chat("telegram", receiver)
        await channel.deliver(asked(HOSTILE), RUN)
    [received] = receiver.received
    assert received.path == f"/bot{TOKEN}/sendMessage"
    assert received.message["chat_id"] == -100
    assert received.message["link_preview_options"] == {"is_disabled": True}
    assert {"parse_mode", "entities"}.isdisjoint(received.message)
    assert (
        "@everyone" in received_text(receiver),
        "@ada" in received_text(receiver),
        "a@b.test" in received_text(receiver),
    ) == (
        False,
        False,
        True,
    )
    assert not channel.is_repeatable


async def test_discord_gets_a_message_without_mentions() -> None:
    with webhook_receiver() as receiver:
        await a_chat("discord", receiver).deliver(asked(HOSTILE), RUN)
    [received] = receiver.received
    assert received.message["allowed_mentions"] == {"parse": []}
    assert "](" not in received_text(receiver)
    assert received_text(receiver).startswith("find out: completed, confidence 0.81 [goal-1]\n\n@everyone")


async def test_slack_gets_no_markup() -> None:
    with webhook_receiver() as receiver:
        await a_chat("slack", receiver).deliver(asked(HOSTILE), RUN)
    [received] = receiver.received
    assert (received.message["mrkdwn"], received.message["link_names"]) == (False, False)
    assert "&lt;!channel&gt;" in received_text(receiver)
    assert [part for part in ("<", "](", "@everyone") if part in received_text(receiver)] == []


@pytest.mark.parametrize(("kind", "most"), [("telegram", 3_000), ("discord", 1_800)])
@pytest.mark.parametrize("letter", ["x", "é", "😀"])
async def test_a_long_answer_is_cut_with_a_pointer_to_the_whole(kind: str, most: int, letter: str) -> None:
    with webhook_receiver() as receiver:
        await a_chat(kind, receiver).deliver(asked(letter * 5_000), RUN)
    text = received_text(receiver)
    units = len(text.encode("utf-16-le")) // 2
    assert most - 1 <= units <= most
    assert text.endswith("[cut: 5,000 characters in all; the whole: orga attach goal-1]")


@pytest.mark.parametrize(
    ("length", "is_cut"), [pytest.param(100, False, id="it fits"), pytest.param(101, True, id="one too many")]
)
def test_only_a_text_over_the_limit_is_cut(length: int, is_cut: bool) -> None:
    text = shortened_text("y" * length, 100, length, RUN)
    assert (text == "y" * length, len(text)) == (not is_cut, 100)


def test_an_id_with_special_characters_is_quoted_or_not_shown_in_a_command() -> None:
    assert "orga attach" not in shortened_text("y" * 300, 200, 300, RunKey("--help", ""))
    assert shortened_text("y" * 300, 200, 300, RunKey("a b; rm", "")).endswith("orga attach 'a b; rm']")


@pytest.mark.parametrize("kind", ["telegram", "discord", "slack"])
@pytest.mark.parametrize(
    ("says", "retryable", "wish_s", "may_have_arrived"),
    [
        pytest.param(Says(500), True, None, True, id="500"),
        pytest.param(Says(504), True, None, True, id="504, by a proxy"),
        pytest.param(Says(408), True, None, True, id="408"),
        pytest.param(Says(409), True, None, True, id="409"),
        pytest.param(Says(429, {"retry-after": "7"}), True, 7.0, False, id="429 with a header"),
        pytest.param(Says(429, words='{"parameters":{"retry_after":9}}'), True, 9.0, False, id="429 of Telegram"),
        pytest.param(Says(429, words="[[[["), True, None, False, id="429 with nonsense"),
        pytest.param(Says(401), False, None, False, id="401"),
        pytest.param(Says(302, {"location": "/"}), False, None, False, id="a redirect"),
    ],
)
async def test_a_refusal_of_a_chat_is_classified(
    kind: str, says: Says, retryable: bool, wish_s: float | None, may_have_arrived: bool
) -> None:
    with webhook_receiver(says) as receiver, pytest.raises(NotifyError) as refused:
        await a_chat(kind, receiver).deliver(asked(), RUN)
    error = refused.value
    assert (error.retryable, error.retry_after_s, error.may_have_arrived) == (retryable, wish_s, may_have_arrived)
    assert [secret for secret in (TOKEN, "t0ken", "127.0.0.1") if secret in str(error)] == []


async def test_an_unreachable_chat_has_certainly_not_received_the_message() -> None:
    with webhook_receiver() as receiver:
        channel = a_chat("discord", receiver)
    with pytest.raises(NotifyError, match="no connection") as refused:
        await channel.deliver(asked(), RUN)
    assert (refused.value.retryable, refused.value.may_have_arrived) == (True, False)


async def test_a_chat_that_does_not_answer_may_have_received_the_message(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("orga.activities.adapters.webhook.post.ATTEMPT_S", 0.2)
    with webhook_receiver(Says(hangs=True)) as receiver:
        with pytest.raises(NotifyError) as refused:
            await a_chat("slack", receiver).deliver(asked(), RUN)
        receiver.release.set()
    assert refused.value.may_have_arrived


async def test_a_memory_is_stored_once_for_the_owner_of_the_goal_with_its_taint() -> None:
    shelf, ada = Shelf(), Reader(tenant="acme", user="ada")
    behalf = Behalf(reader=ada, iteration=7, model="m", taint=("fetch_url",))
    channel = a_channel(shelf=shelf, kind="memory")
    for _ in range(2):
        await channel.deliver(asked("It is 42.", behalf=behalf), RUN)
    [kept] = shelf.held.values()
    assert (kept.kind, kept.scope, kept.owner, kept.key) == ("memory", "user", ada, "goal_k")
    assert kept.text == "Goal: find out\nEnded: completed\nIt is 42."
    assert (kept.confidence, kept.provenance.workflow_id, kept.provenance.taint) == (0.81, "goal-1", ("fetch_url",))
    await channel.deliver(asked("x" * 30_000), RUN)
    assert [len(item.text) < 21_000 and item.scope for item in shelf.stored[2:]] == ["tenant"]
    assert "the whole: orga attach goal-1" in shelf.stored[2].text


async def test_a_store_failure_is_reported() -> None:
    shelf = Shelf(a_fact("x"))
    shelf.down = KnowledgeError("the database is down", kind="Unreachable", retryable=True)
    with pytest.raises(NotifyError, match="the database is down") as failed:
        await a_channel(shelf=shelf, kind="memory").deliver(asked(), RUN)
    assert (failed.value.kind, failed.value.retryable) == ("Unreachable", True)


async def test_each_goal_gets_its_own_file_and_a_repetition_writes_the_same(tmp_path: Path) -> None:
    channel = a_channel(root=tmp_path, kind="file", path="answers/{goal_id}.md")
    for _ in range(2):
        await channel.deliver(asked("# Found\n\nall of it"), RUN)
    await channel.deliver(asked("another"), RunKey("goal-2", ""))
    written = {path.name: path.read_text() for path in (tmp_path / "answers").iterdir()}
    assert written == {"goal-1.md": "# Found\n\nall of it\n", "goal-2.md": "another\n"}
    assert channel.is_repeatable


async def test_an_interrupted_delivery_never_replaces_a_newer_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    channel, sync = a_channel(root=tmp_path, kind="file", path="{goal_id}.md"), Held(os.fsync)
    monkeypatch.setattr(os, "fsync", sync)
    old = asyncio.create_task(channel.deliver(asked("old"), RUN))
    assert await asyncio.to_thread(sync.is_reached.wait, PATIENCE_S)
    old.cancel()
    with pytest.raises(asyncio.CancelledError):
        await old
    await channel.deliver(asked("new"), RUN)
    sync.may_go_on.set()
    async with asyncio.timeout(PATIENCE_S):
        while len(list(tmp_path.iterdir())) > 1:
            await asyncio.sleep(0.01)
    assert (tmp_path / "goal-1.md").read_text() == "new\n"


@pytest.mark.parametrize("goal_id", ["../../etc/passwd", "a/b", ".hidden", "-x", "", "x" * 200, "a\0b", "ü"])
async def test_the_id_of_a_goal_cannot_leave_its_folder(tmp_path: Path, goal_id: str) -> None:
    root = tmp_path / "root"
    root.mkdir()
    await a_channel(root=root, kind="file", path="answers/{goal_id}.md").deliver(asked(), RunKey(goal_id, ""))
    [written] = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert written.parent == root / "answers"
    assert written.name.startswith("goal-")


async def test_a_file_delivery_follows_no_link_and_replaces_no_rule(tmp_path: Path) -> None:
    root, outside = tmp_path / "root", tmp_path / "outside"
    root.mkdir()
    outside.mkdir()
    (root / "answers").symlink_to(outside)
    for channel in (
        a_channel(root=root, kind="file", path="answers/{goal_id}.md"),
        FileDelivery(FileRoot(root, Rules(folders=(root / "policies",))), "policies/{goal_id}.cedar"),
    ):
        with pytest.raises(NotifyError) as refused:
            await channel.deliver(asked(), RUN)
        assert not refused.value.retryable
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []
