"""The settings, the sample and the signature check of docs/notifications.md work as printed there."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.programs.inline_command import an_inline_orga
from tests.support.programs.orga_command import ROOT
from tests.support.web.webhook_receiver import SECRET, Receiver, Says, webhook_receiver

GUIDE = (ROOT / "docs" / "notifications.md").read_text()
RUN = "agent-that-tells"
ENV = {"ORGA_NOTIFY_SECRET": SECRET}


def block(language: str) -> str:
    found = re.search(rf"^```{language}\n(.*?)^```", GUIDE, re.DOTALL | re.MULTILINE)
    assert found
    return found[1]


@pytest.fixture
def is_genuine() -> Callable[[str, dict[str, str], bytes], bool]:
    namespace: dict[str, Any] = {}
    exec(block("python"), namespace)
    return namespace["is_genuine"]


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "orga.toml").write_text(block("toml"))
    (folder / "README.md").write_text("Retries are configured with `max_attempts`.\n")
    return folder


def test_the_sample_of_the_guide(project: Path, is_genuine: Callable[[str, dict[str, str], bytes], bool]) -> None:
    with webhook_receiver() as receiver:
        orga = an_inline_orga(project, project, **ENV, ORGA_NOTIFY__URL=receiver.url)
        sent = orga("notify", "test")
    [received] = receiver.received
    assert (sent.code, sent.out) == (0, "200 ok\n")
    assert received.message["event"] == "test"
    assert is_genuine(SECRET, received.headers, received.body)
    assert not is_genuine(SECRET, received.headers, received.body + b" ")
    assert not is_genuine(SECRET, received.headers | {"webhook-id": "msg_other"}, received.body)
    assert not is_genuine(SECRET, received.headers | {"webhook-timestamp": "1"}, received.body)


@pytest.mark.parametrize(
    ("answer", "env", "code", "says"),
    [
        pytest.param(Says(404, words="no such hook"), ENV, 6, "404 no such hook", id="refused"),
        pytest.param(Says(302, {"location": "/"}), ENV, 6, "redirects are not followed", id="a redirect"),
        pytest.param(Says(), {}, 2, "but not ORGA_NOTIFY_SECRET in the environment; set it to", id="no secret"),
    ],
)
def test_a_failed_sample_reports_why(project: Path, answer: Says, env: dict[str, str], code: int, says: str) -> None:
    with webhook_receiver(answer) as receiver:
        done = an_inline_orga(project, project, **env, ORGA_NOTIFY__URL=receiver.url)("notify", "test")
    assert (done.code, says in done.out + done.err) == (code, True), done.err
    assert "t0ken" not in done.out + done.err


def test_a_sample_without_a_receiver_reports_no_connection(project: Path) -> None:
    with webhook_receiver() as receiver:
        pass
    done = an_inline_orga(project, project, **ENV, ORGA_NOTIFY__URL=receiver.url)("notify", "test", "--json")
    assert (done.code, done.out) == (6, "")
    assert "orga: the receiver of notifications: no connection" in done.err


def test_a_run_notifies_people_of_its_question(
    project: Path, is_genuine: Callable[[str, dict[str, str], bytes], bool]
) -> None:
    """A separate worker sends the message.

    The server's database and the logs contain neither the secret nor the address.
    """
    home = project.parent / "home"
    with webhook_receiver() as receiver:
        orga = an_inline_orga(project, home, **ENV, ORGA_NOTIFY__URL=receiver.url)
        with orga.started("worker") as worker:
            worker.line("polls task queue")
            asks = ("--set", "on_exhausted=ask", "--max-iterations", "1")
            assert orga("run", "How are retries configured?", "--id", RUN, "--detach", *asks).code == 0
            reported = _messages(receiver, 1)[0]
            assert orga(*reported["commands"][1].split()[1:]).code == 0
            _messages(receiver, 2)
            shown = orga("journal", RUN, "--json")
        orga("server", "--stop")
    assert [(m["event"], m["workflow_id"]) for m in _messages(receiver, 2)] == [("waiting", RUN), ("ended", RUN)]
    assert (reported["kind"], reported["limit"], reported["link"]) == (
        "budget",
        "max_iterations",
        f"https://temporal.example.com/namespaces/default/workflows/{RUN}",
    )
    assert all(is_genuine(SECRET, each.headers, each.body) for each in receiver.received)
    files = [path.read_bytes() for path in home.rglob("*") if path.is_file()]
    places = [*files, *(text.encode() for text in (shown.out, *worker.out, *worker.err))]
    assert any(RUN.encode() in file for file in files)
    for secret in (SECRET, "t0ken-in-the-address"):
        assert not any(secret.encode() in place for place in places), secret


def _messages(receiver: Receiver, count: int) -> list[dict[str, Any]]:
    receiver.wait_for(count)
    return [json.loads(each.body) for each in receiver.received]
