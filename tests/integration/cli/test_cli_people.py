"""Decisions of people on the command line: the embedded server, and a real worker with the guide's own example."""

import json
import re
import shlex
import time
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.model.chat_server import Calls, Says, chat_server
from tests.support.programs.inline_command import InlineOrga
from tests.support.programs.orga_command import ROOT, Orga, Running, an_orga

GUIDE = (ROOT / "docs" / "when-a-call-fails.md").read_text()


def block(language: str) -> str:
    """Return the guide's block about the archive."""
    found = re.findall(rf"^```{language}\n(.*?)^```", GUIDE, re.DOTALL | re.MULTILINE)
    return next(each for each in found if "archive" in each)


@pytest.fixture(scope="module")
def orga(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Orga]:
    """Commands for the guide's example. Its model saves, then notifies, then answers."""
    folder, home = tmp_path_factory.mktemp("project"), tmp_path_factory.mktemp("home")
    (folder / "orga.toml").write_text(block("toml"))
    (folder / "archive.py").write_text(block("python"))
    with chat_server(Calls("save", {"text": "x"}), Calls("notify", {"text": "y"}), Says(["done"])) as chat:
        settings = {"ORGA_MODELS__BASE_URLS": json.dumps({"openai-compatible": chat.url}), "LOGNAME": "ada"}
        env = an_orga(folder, home, ORGA_MODELS__DEFAULT="openai-compatible:m", **settings).env
        command = InlineOrga(folder, env)
        yield command
        command("server", "--stop")


@pytest.fixture(scope="module")
def worker(orga: Orga) -> Iterator[Running]:
    with orga.started("worker") as running:
        running.line("polls task queue")
        yield running


@pytest.fixture(autouse=True)
def _nothing_works(orga: Orga, worker: Running) -> None:
    for name in ("archive", "readers"):
        path = orga.folder / name
        if path.is_dir():
            path.rename(path.with_name(f"{name}-{time.monotonic_ns()}"))
        path.unlink(missing_ok=True)


def a_run(orga: Orga, *options: str) -> str:
    done = orga("run", "keep it", "--agent", "archivist", "--detach", *options)
    assert done.code == 0, done.err
    return done.out.strip()


def question_of(orga: Orga, run_id: str, *options: str) -> dict[str, Any]:
    """Return what a run waits for, once the inbox has it."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        for item in json.loads(orga("inbox", "--json", *options).out):
            if item["run"] == run_id and item["answered"]:
                return item
    raise AssertionError(f"{run_id} asks nothing: {orga('status', run_id).out}")


def journal(orga: Orga, run_id: str, event: str) -> list[dict[str, Any]]:
    entries = [json.loads(line) for line in orga("journal", run_id, "--json").out.splitlines()]
    return [entry["data"] for entry in entries if entry["event"] == event]


@pytest.mark.parametrize(
    ("options", "code", "expected"),
    [
        pytest.param(["--retry"], 0, "saved", id="try again, the archive is mounted"),
        pytest.param(["--skip"], 0, "[Error] ToolError: the archive is not mounted", id="skip"),
        pytest.param(["--result", "on paper"], 0, "[Result from the operator]\non paper", id="a result"),
        pytest.param(["--result", "@paper.txt"], 0, "[Result from the operator]\non päper\n", id="a result in a file"),
        pytest.param(["--abort"], 6, None, id="end the run"),
    ],
)
def test_an_escalation_is_decided(orga: Orga, options: list[str], code: int, expected: str | None) -> None:
    run_id = a_run(orga)
    item = question_of(orga, run_id, "--queue", "storage", "--kind", "escalation")
    assert item["data"]["error"] == "ToolError: the archive is not mounted"
    assert item["commands"][0] == f"orga resolve {run_id} {item['id']} --retry"
    (orga.folder / "archive").mkdir()
    (orga.folder / "paper.txt").write_text("on päper\n")

    decided = orga("resolve", run_id, item["id"], *options, "--reason", "mended", "--json")
    assert decided.code == 0, decided.err
    assert json.loads(decided.out) == {
        "id": run_id,
        "escalation": item["id"],
        "choice": options[0].removeprefix("--"),
        "by": "ada",
        "reason": "mended",
    }
    ended = orga("attach", run_id)
    assert ended.code == code, ended.err
    choices = [(data["choice"], data["by"]) for data in journal(orga, run_id, "ApprovalResolved")]
    assert choices == [(options[0].removeprefix("--"), "ada")]
    results = [m["text"] for m in json.loads(orga("conversation", run_id, "--json").out) if m["tool"] == "save"]
    assert expected is None or results == [expected]
    assert run_id not in orga("inbox").out


def test_a_single_question_needs_no_id_and_the_inbox_shows_the_commands(orga: Orga) -> None:
    run_id = a_run(orga)
    item = question_of(orga, run_id)
    shown = orga("inbox").out
    assert re.search(rf"^escalation  {run_id} \(archivist\)  {item['id']}  \d+ s  queue storage$", shown, re.MULTILINE)
    assert "save failed: try again" in shown
    assert f"→ orga resolve {run_id} {item['id']} --retry (or --skip, --result TEXT, --abort)" in shown
    assert f"→ orga resolve {run_id} {item['id']} --retry" in orga("status", run_id).out
    assert "running (waits: escalation)" in orga("list").out
    assert orga("resolve", run_id, "--skip", "--by", "grace").code == 0
    assert orga("attach", run_id).code == 0
    assert journal(orga, run_id, "ApprovalResolved")[0]["by"] == "grace"


def test_a_watched_run_shows_its_question_and_continues_after_the_decision(orga: Orga) -> None:
    with orga.started("run", "keep it", "--agent", "archivist") as running:
        run_id = running.line(r"^run (agent-[0-9a-f-]+)")[1]
        running.line(r"\? waits for a person \(escalation call-1\.0-0\)")
        command = running.line(r"waits for you: save failed.* → (orga resolve \S+ \S+ --retry) \(or --skip")[1]
        (orga.folder / "archive").mkdir()
        assert orga(*shlex.split(command)[1:]).code == 0
        running.line(r"call-1\.0-0: retry by ada")
        running.line(r"↻ save: escalate, ok")
        assert running.code() == 0
    assert run_id in command


def test_a_budget_is_raised_by_the_inbox_command(orga: Orga) -> None:
    (orga.folder / "archive").mkdir()
    run_id = a_run(orga, "--set", "on_exhausted=ask", "--max-iterations", "1")
    item = question_of(orga, run_id, "--kind", "budget")
    assert item["commands"][0] == f"orga extend {run_id} --max-iterations 2"
    raised = orga(*shlex.split(item["commands"][0])[1:], "--json")
    assert json.loads(raised.out) == {"id": run_id, "limits": {"max_iterations": 2.0}}
    again = question_of(orga, run_id, "--kind", "budget")
    assert again["id"] != item["id"]
    assert orga("resolve", run_id, "--skip").code == 0
    assert orga("attach", run_id).code == 3


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        pytest.param(["resolve", "call-9.9-9", "--skip"], "no escalation 'call-9.9-9' waits here; ", id="unknown"),
        pytest.param(
            ["resolve", "--retry"], "a budget is raised by extend_budget; or choose skip", id="no such choice"
        ),
        pytest.param(["extend", "--max-iterations", "1"], "1 does not raise the limit of 1", id="not higher"),
        pytest.param(["extend", "--max-cost-usd", "5"], "this run has no such limit", id="no such limit"),
        pytest.param(["requeue", "9.9"], "no dead letter '9.9' in this run; there are: none", id="no such letter"),
        pytest.param(["requeue"], "has no dead letter. See: orga list --dead-letters", id="no letter at all"),
        pytest.param(["requeue", "1.0", "--fork"], "is live. Remove --fork", id="a fork of a live run"),
    ],
)
def test_a_refused_decision_is_one_line_and_changes_nothing(
    orga: Orga, budget_ask: str, arguments: list[str], says: str
) -> None:
    done = orga(arguments[0], budget_ask, *arguments[1:])
    assert (done.code, done.out, done.err.count("\n")) == (2, "", 1)
    assert done.err.startswith("orga: ")
    assert says in done.err
    assert [wait["kind"] for wait in json.loads(orga("status", budget_ask, "--json").out)["waiting"]] == ["budget"]


@pytest.fixture(scope="module")
def budget_ask(orga: Orga, worker: Running) -> Iterator[str]:
    """A run that waits for more iterations, without a dead letter."""
    (orga.folder / "archive").mkdir(exist_ok=True)
    run_id = a_run(orga, "--set", "on_exhausted=ask", "--max-iterations", "1")
    question_of(orga, run_id, "--kind", "budget")
    yield run_id
    orga("abort", run_id)


def test_a_live_run_requeues_a_dead_letter(orga: Orga) -> None:
    (orga.folder / "archive").mkdir()
    run_id = a_run(orga, "--set", "on_exhausted=ask", "--max-iterations", "2")
    question_of(orga, run_id, "--kind", "budget")
    [row] = [row for row in json.loads(orga("list", "--dead-letters", "--json").out) if row["id"] == run_id]
    assert (row["dead_letters"], [letter["letter_id"] for letter in row["letters"]]) == (1, ["2.0"])
    shown = orga("list", "--dead-letters").out
    assert "  2.0 notify y: ToolError: nobody listens" in shown
    assert f"  → orga requeue {run_id} 2.0" in shown

    (orga.folder / "readers").write_text("")
    assert json.loads(orga("requeue", run_id, "--json").out) == {"id": run_id, "letters": ["2.0"]}
    assert "will be sent again" in orga("status", run_id).out
    assert orga("extend", run_id, "--max-iterations", "9").code == 0
    assert orga("attach", run_id).code == 0
    assert "sent: y" in sent_again(orga, run_id)
    assert run_id not in orga("list", "--dead-letters").out


def sent_again(orga: Orga, run_id: str) -> str:
    messages = [message["text"] for message in json.loads(orga("conversation", run_id, "--json").out)]
    [text] = [text for text in messages if text.startswith("[Requeued call] notify (2.0)")]
    return text


def test_a_fork_requeues_the_dead_letter_of_an_ended_run(orga: Orga) -> None:
    (orga.folder / "archive").mkdir()
    run_id = a_run(orga)
    assert orga("attach", run_id).code == 0
    refused = orga("requeue", run_id, "2.0")
    remedy = f"orga requeue {run_id} 2.0 --fork"
    assert (refused.code, refused.err.count("\n")) == (6, 1)
    assert refused.err.rstrip().endswith(f"run '{run_id}' has ended. A fork of it can send its letters again: {remedy}")
    assert f"→ {remedy}" in orga("list", "--dead-letters").out

    (orga.folder / "readers").write_text("")
    forked = orga(*shlex.split(remedy)[1:])
    assert forked.code == 0, forked.err
    fork = forked.out.strip()
    assert orga("attach", fork).code == 0
    assert "sent: y" in sent_again(orga, fork)
    assert journal(orga, fork, "Started")[0]["forked_from"]["workflow_id"] == run_id
    unknown = orga("requeue", run_id, "9.9", "--fork")
    assert (unknown.code, unknown.err.splitlines()[-1]) == (
        2,
        "orga: no dead letter '9.9' in this run; there are: 2.0",
    )


def test_a_fork_of_a_run_that_ended_at_its_limit_needs_a_higher_one(orga: Orga) -> None:
    (orga.folder / "archive").mkdir()
    run_id = a_run(orga, "--max-iterations", "2")
    assert orga("attach", run_id).code == 3
    refused = orga("requeue", run_id, "--all", "--fork")
    assert refused.code == 6
    assert (
        "ended at its limit (max_iterations: limit of 2 iterations); raise it for the fork, with --set" in refused.err
    )
    (orga.folder / "readers").write_text("")
    forked = orga("requeue", run_id, "--all", "--fork", "--set", "max_iterations=9", "--json")
    fork = json.loads(forked.out)
    assert (fork["forked_from"], fork["letters"]) == ({"id": run_id}, ["2.0"])
    assert orga("attach", fork["id"]).code == 0


def test_a_decision_is_not_sent_without_a_worker(orga: Orga) -> None:
    run_id = orga("run", "x", "--detach", OLLAMA_HOST="another-shell").out.strip()
    for command in (
        ["resolve", run_id, "--skip"],
        ["extend", run_id, "--timeout-s", "900"],
        ["requeue", run_id, "1.0"],
    ):
        done = orga(*command)
        assert done.code == 6
        assert done.err.startswith("orga: no worker answered on task queue 'orga-")
        assert re.search(r"start one with: OLLAMA_HOST=… .*orga worker", done.err)
    assert orga("abort", run_id).code == 0


@pytest.mark.parametrize("command", [["resolve", "--skip"], ["extend", "--timeout-s", "9"], ["requeue", "1.0"]])
def test_an_unknown_run_is_reported_in_one_line(orga: Orga, command: list[str]) -> None:
    done = orga(command[0], "agent-nope", *command[1:])
    assert (done.code, done.err) == (2, "orga: there is no run 'agent-nope'; `orga list` shows the ids\n")


def test_an_ended_run_takes_no_decision(orga: Orga) -> None:
    (orga.folder / "archive").mkdir()
    run_id = a_run(orga)
    assert orga("attach", run_id).code == 0
    for command in (["resolve", run_id, "w", "--skip"], ["extend", run_id, "--timeout-s", "900"]):
        done = orga(*command)
        assert (done.code, done.err.count("\n")) == (6, 1)
        assert f"run '{run_id}' has ended" in done.err
