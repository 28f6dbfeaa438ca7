"""Approvals on the command line: the embedded server, a real worker, and the guide's own agent, tool and policy."""

import json
import re
import shlex
import time
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.model.chat_server import Calls, CallsAtOnce, Says, chat_server
from tests.support.programs.inline_command import InlineOrga
from tests.support.programs.orga_command import ROOT, Orga, Running, an_orga

GUIDE = (ROOT / "docs" / "approvals.md").read_text()
REFUNDS = (Calls("refund", {"order": "A-7", "cents": 900}), Calls("refund", {"order": "A-8", "cents": 90_000}))


def block(language: str) -> str:
    found = re.search(rf"^```{language}\n(.*?)^```", GUIDE, re.DOTALL | re.MULTILINE)
    assert found
    return found[1]


@pytest.fixture(scope="module")
def orga(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Orga]:
    """Commands for the guide's example. Its model asks for two refunds at once, then for one, then answers."""
    folder, home = tmp_path_factory.mktemp("project"), tmp_path_factory.mktemp("home")
    (folder / "orga.toml").write_text(block("toml"))
    (folder / "till.py").write_text(block("python"))
    (folder / "policies").mkdir()
    (folder / "policies" / "refunds.cedar").write_text(block("cedar"))
    with chat_server(CallsAtOnce(REFUNDS), REFUNDS[0], Says(["done"])) as chat:
        settings = {"ORGA_MODELS__BASE_URLS": json.dumps({"openai-compatible": chat.url}), "LOGNAME": "ada"}
        env = an_orga(folder, home, ORGA_MODELS__DEFAULT="openai-compatible:m", **settings).env
        command = InlineOrga(folder, env)
        yield command
        command("server", "--stop")


@pytest.fixture(scope="module", autouse=True)
def worker(orga: Orga) -> Iterator[Running]:
    with orga.started("worker") as running:
        running.line("polls task queue")
        yield running


@pytest.fixture(autouse=True)
def _empty_till(orga: Orga) -> None:
    (orga.folder / "refunds").unlink(missing_ok=True)


def refunds(orga: Orga) -> list[str]:
    file = orga.folder / "refunds"
    return file.read_text().splitlines() if file.exists() else []


def a_run(orga: Orga) -> str:
    done = orga("run", "refund them", "--agent", "cashier", "--detach")
    assert done.code == 0, done.err
    return done.out.strip()


def held(orga: Orga, run_id: str, count: int = 2) -> dict[str, Any]:
    """Return the inbox entry of a run once it holds this many calls."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        for item in json.loads(orga("inbox", "--json", "--kind", "approval").out):
            if item["run"] == run_id and item["answered"] and len(item["data"]["calls"]) == count:
                return item
    raise AssertionError(f"{run_id} holds no {count} calls: {orga('status', run_id).out}")


def ids(item: dict[str, Any]) -> list[str]:
    return [call["id"] for call in item["data"]["calls"]]


def resolved(orga: Orga, run_id: str) -> list[tuple[bool, str, str]]:
    entries = [json.loads(line) for line in orga("journal", run_id, "--json").out.splitlines()]
    decided = [e["data"] for e in entries if e["event"] == "ApprovalResolved" and e["data"]["kind"] == "call"]
    return [(data["approved"], data["approver"], data["reason"]) for data in decided]


def test_calls_are_approved_by_the_inbox_command_and_denied_with_a_reason(orga: Orga) -> None:
    run_id = a_run(orga)
    item = held(orga, run_id)
    both = " ".join(ids(item))
    assert item["commands"] == [f"orga approve {run_id} {both}", f"orga deny {run_id} {both}"]
    assert item["data"]["calls"][0]["arguments"] == '{"order":"A-7","cents":900}'
    approved = orga(*shlex.split(item["commands"][0])[1:], "--reason", "agreed", "--json")
    assert json.loads(approved.out) == {"id": run_id, "approved": ids(item), "by": "ada", "reason": "agreed"}

    [third] = ids(held(orga, run_id, 1))
    denied = orga("deny", run_id, third, "--by", "grace", "--reason", "once is enough")
    assert (denied.code, denied.out) == (0, "")
    assert denied.err == f"denied by grace: {third} of {run_id}; follow it: orga attach {run_id}\n"
    assert orga("attach", run_id).code == 0
    assert sorted(refunds(orga)) == ["A-7 900", "A-8 90000"]
    assert resolved(orga, run_id) == [
        (True, "ada", "agreed"),
        (True, "ada", "agreed"),
        (False, "grace", "once is enough"),
    ]
    assert "[Policy denied] not approved: once is enough" in orga("conversation", run_id, "--json").out
    assert run_id not in orga("inbox").out


def test_a_call_is_approved_with_other_arguments(orga: Orga) -> None:
    run_id = a_run(orga)
    first, second = ids(held(orga, run_id))
    (orga.folder / "less.json").write_text('{"order": "A-8", "cents": 100}')
    changed = orga("approve", run_id, second, "--arguments", f"@{orga.folder / 'less.json'}", "--json")
    assert json.loads(changed.out) == {"id": run_id, "approved": [second], "by": "ada"}
    assert orga("deny", run_id, first).code == 0
    held(orga, run_id, 1)
    assert orga("approve", run_id, "--arguments", '{"order":"A-7","cents":1}').code == 0
    assert orga("attach", run_id).code == 0
    assert refunds(orga) == ["A-8 100", "A-7 1"]
    results = [message["text"] for message in json.loads(orga("conversation", run_id, "--json").out)]
    assert any('[Arguments changed by ada] {"order":"A-8","cents":100}' in text for text in results)
    narrated = orga("journal", run_id).out
    assert 'refund approved by ada with {"order": "A-8", "cents": 100}' in narrated


def test_a_repeated_a_late_and_a_foreign_decision_are_one_line_each_and_change_nothing(orga: Orga) -> None:
    run_id = a_run(orga)
    first, second = ids(held(orga, run_id))
    assert orga("approve", run_id, first).code == 0
    for arguments, says in (
        (["approve", run_id, first], f"orga: {first} is approved already, by ada\n"),
        (["deny", run_id, first, "--by", "grace"], f"orga: {first} is approved already, by ada\n"),
        (["approve", run_id, second, "--by", "eve"], "orga: 'eve' may not decide this; these may: ada, grace\n"),
        (["approve", run_id, "f" * 24], f"orga: no approval is pending under '{'f' * 24}'; pending: {second}\n"),
        (["resolve", run_id, "--skip"], "orga: held calls are decided one by one, by the updates approve and deny\n"),
    ):
        refused = orga(*arguments)
        assert (refused.code, refused.out, refused.err) == (2, "", says)
    mixed = orga("deny", run_id, first, second, "--json")
    assert (mixed.code, json.loads(mixed.out)) == (
        2,
        {"id": run_id, "denied": [second], "by": "ada", "refused": {first: f"{first} is approved already, by ada"}},
    )
    [third] = ids(held(orga, run_id, 1))
    assert orga("approve", run_id, second).code == 2
    assert orga("approve", run_id).code == 0
    assert orga("attach", run_id).code == 0
    late = orga("approve", run_id, third)
    assert (late.code, late.err.count("\n")) == (6, 1)
    assert f"run '{run_id}' has ended" in late.err
    assert refunds(orga) == ["A-7 900", "A-7 900"]
    assert len(resolved(orga, run_id)) == 3


def test_several_held_calls_are_listed_unless_the_command_names_some(orga: Orga) -> None:
    run_id = a_run(orga)
    first, second = ids(held(orga, run_id))
    refused = orga("approve", run_id)
    assert (refused.code, refused.out) == (2, "")
    lines = refused.err.splitlines()
    assert re.fullmatch(r"approval +tool +approvers +expires +arguments", lines[0])
    assert re.fullmatch(rf'{first}  refund  ada, grace  in \d d(?: \d+ h)? +{{"order":"A-7","cents":900}}', lines[1])
    assert lines[3].startswith(second)
    assert lines[-1] == f"orga: run '{run_id}' holds 2 calls. Name some, or add --all"
    for command in (["inbox"], ["status", run_id]):
        assert lines[1] in orga(*command).out
    assert "running (waits: approval)" in orga("list").out

    denied = orga("deny", run_id, "--all", "--json")
    assert json.loads(denied.out) == {"id": run_id, "denied": [first, second], "by": "ada"}
    held(orga, run_id, 1)
    assert orga("abort", run_id).code == 0
    assert orga("attach", run_id).code == 5
    assert orga("approve", run_id, "--all").code == 6
    assert refunds(orga) == []


def test_the_inbox_lists_held_calls_of_several_runs_oldest_first(orga: Orga) -> None:
    runs = [a_run(orga) for _ in range(3)]
    of_each = [held(orga, run_id) for run_id in runs]
    listed = [item for item in json.loads(orga("inbox", "--json").out) if item["run"] in runs]
    assert [item["run"] for item in listed] == runs
    assert len({approval for item in of_each for approval in ids(item)}) == 6
    mixed_up = orga("approve", runs[0], ids(of_each[1])[0])
    assert (mixed_up.code, refunds(orga)) == (2, [])
    for run_id in runs:
        assert orga("abort", run_id).code == 0


def test_a_watched_run_shows_its_held_calls_and_continues_after_the_decision(orga: Orga) -> None:
    with orga.started("run", "refund them", "--agent", "cashier") as running:
        running.line(r'\? [0-9a-f]{24}: refund \{"order":"A-7","cents":900}: policy refunds: .* house \(ada, grace\)')
        command = running.line(r"waits for you: refund .* → (orga approve \S+ \S+ \S+) \(or orga deny ")[1]
        assert orga(*shlex.split(command)[1:]).code == 0
        running.line(r"refund approved by ada \([0-9a-f]{24}\)")
        again = running.line(r"waits for you: refund .* → (orga approve \S+ \S+) \(or orga deny ")[1]
        assert orga(*shlex.split(again.replace("approve", "deny"))[1:]).code == 0
        assert running.code() == 0
    assert sorted(refunds(orga)) == ["A-7 900", "A-8 90000"]


def test_a_decision_is_not_sent_without_a_worker(orga: Orga) -> None:
    run_id = orga("run", "x", "--detach", OLLAMA_HOST="another-shell").out.strip()
    for command in (["approve", run_id, "f" * 24], ["deny", run_id]):
        done = orga(*command)
        assert done.code == 6
        assert done.err.startswith("orga: no worker answered on task queue 'orga-")
        assert re.search(r"start one with: OLLAMA_HOST=… .*orga worker", done.err)
    assert orga("abort", run_id).code == 0


@pytest.mark.parametrize("command", [["approve"], ["deny", "--all"], ["approve", "f" * 24]])
def test_an_unknown_run_is_reported_in_one_line(orga: Orga, command: list[str]) -> None:
    done = orga(command[0], "agent-nope", *command[1:])
    assert (done.code, done.err) == (2, "orga: there is no run 'agent-nope'; `orga list` shows the ids\n")
