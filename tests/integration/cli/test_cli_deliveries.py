"""`orga goal --deliver`, and `orga requeue` of failed deliveries, as users type them."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.programs.inline_command import an_inline_orga
from tests.support.programs.orga_command import Orga
from tests.support.web.webhook_receiver import SECRET, Receiver, Says, webhook_receiver

CONFIG = """
[goals.deliveries.files]
kind = "file"
path = "answers/{goal_id}.md"
default = true

[goals.deliveries.ops]
kind = "webhook"
url_from = "OPS_ADDRESS"
secret_from = "OPS_KEY"

[goals.deliveries.room]
kind = "discord"
url_from = "ROOM_ADDRESS"
"""


@pytest.fixture(scope="module")
def receiver() -> Iterator[Receiver]:
    with webhook_receiver(*(Says(status) for status in (403, 200, 403, 200, 403, 403, 200))) as found:
        yield found


@pytest.fixture(scope="module")
def chat() -> Iterator[Receiver]:
    with webhook_receiver(Says(hangs=True), Says(200)) as found:
        yield found


@pytest.fixture(scope="module")
def orga(tmp_path_factory: pytest.TempPathFactory, receiver: Receiver, chat: Receiver) -> Iterator[Orga]:
    folder, home = tmp_path_factory.mktemp("project"), tmp_path_factory.mktemp("home")
    (folder / "orga.toml").write_text(CONFIG)
    (folder / "README.md").write_text("# Project\n\nRetries are configured with `max_attempts`.\n")
    command = an_inline_orga(folder, home, OPS_KEY=SECRET, OPS_ADDRESS=receiver.url, ROOM_ADDRESS=chat.url)
    yield command
    command("server", "--stop")


def test_an_answer_is_delivered_by_name_and_requeued_after_a_refusal(orga: Orga, receiver: Receiver) -> None:
    unknown = orga("goal", "How are retries configured?", "--deliver", "nowhere", "--id", "never")
    assert (unknown.code, "there are: files, ops" in unknown.err) == (2, True)
    assert orga("status", "never").code != 0  # the goal was not started

    plain = orga("goal", "How are retries configured?", "--id", "plain", "--json")
    assert plain.code == 0, plain.err
    folder: Path = orga.folder
    answer = json.loads(plain.out)["output"]
    assert (folder / "answers" / "plain.md").read_text().strip() == answer.strip()
    assert receiver.received == []

    reported = orga("goal", "How are retries configured?", "--id", "told", "--deliver", "ops", "--json")
    assert reported.code == 0, reported.err
    [delivery] = json.loads(reported.out)["deliveries"]
    assert (delivery["name"], delivery["status"]) == ("ops", "failed")
    assert "not delivered to ops (webhook): ReceiverRefused" in reported.err
    assert not (folder / "answers" / "told.md").exists()

    waits = orga("inbox", "--kind", "delivery")
    assert waits.code == 0, waits.err
    assert waits.out.startswith("delivery  told (default)")
    assert "not delivered to ops (webhook): ReceiverRefused" in waits.out
    assert waits.out.endswith("  → orga requeue told ops\n")
    [row] = json.loads(orga("list", "--dead-letters", "--json").out)
    assert (row["id"], row["dead_letters"]) == ("told", 1)

    assert orga("requeue", "told", "files").code == 2
    again = orga("requeue", "told", "ops")
    assert again.code == 0, again.err
    refused, taken = receiver.received
    assert refused.headers["idempotency-key"] == taken.headers["idempotency-key"]
    assert refused.body == taken.body
    assert orga("requeue", "plain").code == 2

    twice = orga("requeue", "told", "ops")
    assert (twice.code, "orga requeue told ops --again" in twice.err) == (2, True)
    assert orga("requeue", "told").code == 2
    assert len(receiver.received) == 2
    assert "told" not in orga("inbox", "--kind", "delivery").out


def test_a_value_that_has_become_a_secret_is_not_sent_again(orga: Orga, receiver: Receiver) -> None:
    """The variable was not set when the goal ran, so the answer in its history contains its value."""
    before = len(receiver.received)
    reported = orga("goal", "How are retries configured?", "--id", "open", "--deliver", "ops", "--json")
    assert "max_attempts" in json.loads(reported.out)["output"]
    again = orga("requeue", "open", "ops", LATER_TOKEN="max_attempts")
    assert again.code == 0, again.err
    first, second = receiver.received[before:]
    assert (b"max_attempts" in first.body, b"max_attempts" in second.body) == (True, False)


def test_all_failed_deliveries_are_sent_again_except_those_that_may_have_arrived(
    orga: Orga, receiver: Receiver, chat: Receiver
) -> None:
    ops, room = len(receiver.received), len(chat.received)

    def sent() -> tuple[int, int]:
        return len(receiver.received) - ops, len(chat.received) - room

    reported = orga("goal", "How are retries configured?", "--id", "both", "--deliver", "ops,room", "--json")
    assert [each["status"] for each in json.loads(reported.out)["deliveries"]] == ["failed", "failed"], reported.err
    assert sent() == (1, 1)

    one = orga("requeue", "both")
    assert (one.code, "Name one, or add --all" in one.err) == (2, True)
    refused = orga("requeue", "both", "--all", "--json")
    assert refused.code == 6
    assert json.loads(refused.out)["delivered"] == []
    assert set(json.loads(refused.out)["failed"]) == {"ops", "room"}
    half = orga("requeue", "both", "--all")
    assert (half.code, sent()) == (6, (3, 1))
    assert "is delivered to ops\n" in half.err
    assert "not delivered to room: it may have arrived" in half.err
    assert orga("requeue", "both", "--all").code == 6
    assert sent() == (3, 1)  # no delivered message is sent twice

    again = orga("requeue", "both", "room", "--again")
    assert (again.code, sent()) == (0, (3, 2)), again.err
    assert orga("requeue", "both", "--all").code == 2
    assert orga("inbox", "--kind", "delivery").out == ""
