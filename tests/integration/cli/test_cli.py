"""The command line as users run it: embedded server, real worker, and a detached worker process."""

import json
import os
import re
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.model.chat_server import Calls, ChatServer, Says, chat_server
from tests.support.programs.noted_folder import home, orga
from tests.support.programs.orga_command import COMMAND, Orga, an_orga

__all__ = ["home", "orga"]

RUN_LINE = r"^run (agent-[0-9a-f-]+)"
WORKER_LINE = r"worker (\d+) polls"


@pytest.fixture
def chat() -> Iterator[ChatServer]:
    """A model that reads a file, then holds back the last word of its answer."""
    with chat_server(Calls("read_file", {"path": "notes.md"}), Says(["half an ", "answer"], hold=True)) as server:
        yield server


@pytest.fixture
def held(home: Path, orga: Orga, chat: ChatServer) -> Orga:
    """Commands whose model is `chat`."""
    settings = {"ORGA_MODELS__BASE_URLS": json.dumps({"openai-compatible": chat.url})}
    return an_orga(orga.folder, home, ORGA_MODELS__DEFAULT="openai-compatible:m", **settings)


def a_detached_run(orga: Orga, *arguments: str) -> str:
    return orga("run", "a task", "--detach", *arguments).out.strip()


def test_a_run_prints_its_answer_on_stdout_and_the_rest_on_stderr(orga: Orga) -> None:
    done = orga("run", "What is the retry limit?")
    assert done.code == 0
    assert "five attempts" in done.out
    assert "notes.md:3" in done.out
    assert re.search(RUN_LINE + r"  http://.*/workflows/\1$", done.err, re.MULTILINE)
    assert "✓ search_text" in done.err
    assert re.search(r"^completed: \d+ iterations, \d+ tool calls?, \d+ tokens", done.err, re.MULTILINE)


def test_json_output_is_exactly_the_result_of_the_contract(orga: Orga) -> None:
    result = json.loads(orga("run", "What is the retry limit?", "--json").out)
    assert result["termination"] == {"reason": "completed", "detail": ""}
    assert set(result) == {
        "output",
        "data",
        "iterations",
        "termination",
        "duration_s",
        "usage",
        "tool_calls",
        "conversation_digest",
    }


def test_a_task_comes_from_standard_input(orga: Orga) -> None:
    assert "five attempts" in orga("run", "-", stdin=b"What is the retry limit?").out


def test_a_limit_is_exit_code_3(orga: Orga) -> None:
    done = orga("run", "What is the retry limit?", "--max-iterations", "1")
    assert done.code == 3
    assert "max_iterations" in done.err.splitlines()[-1]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        pytest.param(["--agent", "nobody"], "there is no agent 'nobody'; there are: default", id="unknown agent"),
        pytest.param(["--tools", "delete"], "does not list 'delete'", id="unknown tool"),
        pytest.param(["--model", "foo:bar"], "provider one of openrouter, openai", id="unknown provider"),
        pytest.param(["--model", "openai:gpt-4o"], "openai has no key: set OPENAI_API_KEY", id="no key"),
        pytest.param(
            ["--model", "ollama:m", "--set", "max_cost_usd=1"],
            "the price of ollama:m is not known",
            id="a price that only a worker can look up",
        ),
    ],
)
def test_bad_input_is_exit_code_2_and_reported_once(orga: Orga, arguments: list[str], says: str) -> None:
    done = orga("run", "x", *arguments, "--json")
    last = done.err.splitlines()[-1]
    assert (done.code, done.out) == (2, "")
    assert last.startswith("orga: ")
    assert says in last
    assert done.err.count(says) == 1
    assert "Traceback" not in done.err


@pytest.mark.parametrize(
    ("command", "code"),
    [
        pytest.param(["attach"], 2, id="attach"),
        pytest.param(["status"], 2, id="status"),
        pytest.param(["conversation"], 2, id="conversation"),
        pytest.param(["journal"], 2, id="journal"),
        pytest.param(["steer"], 2, id="steer"),
    ],
)
def test_an_unknown_id_is_reported_in_one_line(orga: Orga, command: list[str], code: int) -> None:
    done = orga(*command, "agent-nope", *(["x"] if command == ["steer"] else []))
    assert done.code == code
    assert done.err.splitlines()[-1] == "orga: there is no run 'agent-nope'; `orga list` shows the ids"


def test_ctrl_c_detaches_and_attach_returns(held: Orga, chat: ChatServer) -> None:
    with held.started("run", "a task") as running:
        run_id = running.line(RUN_LINE)[1]
        running.line("✓ read_file notes.md")
        running.send(signal.SIGINT)
        running.line(rf"detached: our worker finishes its calls .*orga attach {run_id}$")
        chat.release.set()
        assert running.code() == 130
    assert json.loads(held("list", "--running", "--json").out)[0]["id"] == run_id
    back = held("attach", run_id)
    assert (back.code, back.out) == (0, "half an answer\n")


def test_a_second_signal_exits_at_once_and_an_abort_then_ends_its_worker(held: Orga) -> None:
    with held.started("run", "a task") as running:
        worker = int(running.line(WORKER_LINE)[1])
        run_id = running.line(RUN_LINE)[1]
        running.line("✓ read_file notes.md")
        running.send(signal.SIGTERM)
        running.line("detached")
        running.send(signal.SIGTERM)
        assert running.code() == 143
    assert held("abort", run_id, "enough").code == 0
    ended = held("attach", run_id)
    assert ended.code == 5
    assert "aborted (enough)" in ended.err
    assert is_gone(worker)


@pytest.mark.parametrize("is_killed", [pytest.param(False, id="ended"), pytest.param(True, id="killed")])
def test_a_worker_outlives_its_command_until_a_call_of_another_terminal_has_ended(
    held: Orga, chat: ChatServer, *, is_killed: bool
) -> None:
    """The call is not made again, although another worker takes over the run."""
    with held.started("run", "a task") as first:
        worker = int(first.line(WORKER_LINE)[1])
        run_id = first.line(RUN_LINE)[1]
        with held.started("run", "a task") as second:
            other = second.line(RUN_LINE)[1]
            second.line("✓ read_file notes.md")
            wait_for_requests(chat, 4)
            if is_killed:
                first.send(signal.SIGKILL)
            else:
                assert held("abort", run_id, "enough").code == 0
                first.line(
                    rf"worker {worker} ends later, after its calls: reason of {other} \(cut off: kill {worker}\)"
                )
            first.code()
            assert second.line(WORKER_LINE)[1] != str(worker)
            assert is_alive(worker)
            chat.release.set()
            assert second.code() == 0
    assert second.out == ["half an answer"]
    assert len(chat.requests) == 4
    assert is_gone(worker)


def wait_for_requests(chat: ChatServer, count: int) -> None:
    deadline = time.monotonic() + 60
    while len(chat.requests) < count and time.monotonic() < deadline:
        time.sleep(0.02)
    assert len(chat.requests) == count


def is_alive(pid: int) -> bool:
    return not subprocess.run(["kill", "-0", str(pid)], capture_output=True, check=False).returncode


def is_gone(pid: int) -> bool:
    """Wait for the end of a process that is not our child, and may stay a zombie if nobody collects it."""
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        state = subprocess.run(["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, check=False).stdout
        if not state.strip() or state.startswith(b"Z"):
            return True
        time.sleep(0.1)
    return False


def test_a_killed_worker_is_replaced_and_the_run_continues(held: Orga, chat: ChatServer) -> None:
    with held.started("run", "a task") as running:
        first = running.line(WORKER_LINE)[1]
        running.line("✓ read_file notes.md")
        os.kill(int(first), signal.SIGKILL)
        assert running.line(WORKER_LINE)[1] != first
        chat.release.set()
        assert running.code() == 0
    assert running.out == ["half an answer"]


def test_two_viewers_share_a_worker_and_the_remaining_one_starts_the_next(held: Orga, chat: ChatServer) -> None:
    with held.started("run", "a task") as first:
        run_id = first.line(RUN_LINE)[1]
        first.line("✓ read_file notes.md")
        with held.started("attach", run_id) as second:
            second.line("✓ read_file notes.md")
            first.send(signal.SIGINT)
            chat.release.set()
            assert first.code() == 130
            assert second.code() == 0


def test_a_detached_run_without_a_worker_waits_and_says_so(orga: Orga) -> None:
    done = orga("run", "What is the retry limit?", "--detach", "--json")
    run_id = json.loads(done.out)["id"]
    assert "no worker polls task queue 'orga-" in done.err
    with orga.started("attach", run_id, "--no-worker") as waiting:
        waiting.line(r"waiting for a worker on task queue 'orga-\w+'; start one with: orga worker")
        with orga.started("worker") as worker:
            worker.line("worker polls")
            assert waiting.code() == 0
            worker.send(signal.SIGTERM)
            assert worker.code() == 0


def test_a_run_that_was_aborted_before_a_worker_took_it_is_listed_as_aborted(orga: Orga) -> None:
    run_id = a_detached_run(orga, "--id", "never-begun")
    assert orga("abort", run_id, "not needed").code == 0
    assert orga("attach", run_id).code == 5
    [row] = [row for row in json.loads(orga("list", "--json").out) if row["id"] == run_id]
    assert (row["state"], row["model_calls"]) == ("aborted", 0)


def test_signals_reach_the_run_and_are_in_its_journal(held: Orga, chat: ChatServer) -> None:
    with held.started("run", "a task") as running:
        run_id = running.line(RUN_LINE)[1]
        running.line("✓ read_file notes.md")
        for command in (["pause"], ["steer", "be brief"], ["add-context", "a fact"], ["resume"]):
            assert held(command[0], run_id, *command[1:]).code == 0
        status = json.loads(held("status", run_id, "--json").out)
        messages = json.loads(held("conversation", run_id, "--json").out)
        chat.release.set()
        assert running.code() == 0
    assert status["agent"] == "default"
    assert [item["text"] for item in status["unread_interventions"]] == ["be brief", "a fact"]
    assert messages[0]["role"] == "system"
    journal = [json.loads(line) for line in held("journal", run_id, "--json").out.splitlines()]
    kinds = [entry["data"]["kind"] for entry in journal if entry["event"] == "InterventionReceived"]
    assert kinds == ["pause", "steer", "add_context", "resume"]
    late = held("steer", run_id, "too late")
    assert late.code == 6
    assert "has ended" in late.err


def test_without_a_worker_the_status_comes_from_the_history(orga: Orga) -> None:
    run_id = a_detached_run(orga)
    status = orga("status", run_id, "--json")
    assert (status.code, json.loads(status.out)["from"]) == (0, "history")
    assert orga("journal", run_id).out.splitlines()[0].endswith("task: a task")
    conversation = orga("conversation", run_id)
    assert (conversation.code, conversation.out) == (0, "")
    assert conversation.err.startswith("no worker has taken the run yet")


def test_the_status_of_a_run_that_failed_shows_its_end(orga: Orga) -> None:
    with orga.started("worker") as worker:
        worker.line("worker polls")
        run_id = orga("run", "x", "--model", "openai-compatible:m", "--detach").out.strip()
        assert orga("attach", run_id).code == 2
        status = orga("status", run_id)
    assert "ended      error InvalidInput: model: openai-compatible has no address" in status.out
    assert "preparing" not in status.out


def test_the_exported_journal_shows_tampering(orga: Orga) -> None:
    orga("run", "What is the retry limit?", "--id", "agent-exported")
    exported = orga("journal", "agent-exported", "--json").out
    path = orga.folder / "run.jsonl"
    path.write_text(exported)
    assert orga("journal", "agent-exported", "--verify").code == 0
    assert orga("journal", "agent-exported", "--exported", "run.jsonl").code == 0
    path.write_text(exported.replace('"iteration": 2', '"iteration": 3', 1))
    tampered = orga("journal", "agent-exported", "--exported", "run.jsonl")
    assert tampered.code == 6
    assert "breaks at entry" in tampered.err
    lines = exported.splitlines(keepends=True)
    path.write_text("".join(lines[:-1]))
    cut = orga("journal", "agent-exported", "--exported", "run.jsonl")
    assert (cut.code, "the tail is missing" in cut.err) == (6, True)
    orga("journal", "agent-exported", "--export", "run.jsonl")
    *entries, head = path.read_text().splitlines(keepends=True)
    assert orga("journal", "agent-exported", "--exported", "run.jsonl").code == 0
    path.write_text("".join([*entries[:2], head]))
    assert orga("journal", "agent-exported", "--exported", "run.jsonl").code == 6
    assert [json.loads(line)["sequence"] for line in exported.splitlines()] == list(range(exported.count("\n")))


def test_a_second_run_with_the_id_of_a_live_run_is_refused(orga: Orga) -> None:
    a_detached_run(orga, "--id", "agent-twice")
    again = orga("run", "x", "--detach", "--id", "agent-twice")
    assert (again.code, again.err.splitlines()[-1].startswith("orga: run 'agent-twice' is live already")) == (6, True)


def test_a_list_is_filtered_and_newest_first(orga: Orga) -> None:
    for name in ("agent-old", "agent-new"):
        orga("run", "What is the retry limit?", "--id", name, "--tenant", "it's us")
    listed = json.loads(orga("list", "--tenant", "it's us", "--agent", "default", "--json").out)
    assert [row["id"] for row in listed] == ["agent-new", "agent-old"]
    assert listed[0]["state"] == "completed"
    assert orga("list", "--query", "Nothing = 1").code == 2
    assert "agent-new" in orga("list").out


def test_control_sequences_of_a_model_do_not_reach_the_terminal(home: Path, orga: Orga) -> None:
    with chat_server(Says(["\x1b]0;owned\x07[red]", "an answer"])) as chat:
        settings = {"ORGA_MODELS__BASE_URLS": json.dumps({"openai-compatible": chat.url})}
        hostile = an_orga(orga.folder, home, ORGA_MODELS__DEFAULT="openai-compatible:m", **settings)
        assert hostile("run", "x").out == "[red]an answer\n"
        code, screen = on_a_terminal(hostile, "run", "x")
    assert code == 0
    assert b"\x1b]" not in screen  # the escape is shown as text, so it hides nothing and has no effect
    assert b"[red]an answer" in screen


def on_a_terminal(orga: Orga, *arguments: str) -> tuple[int, bytes]:
    ours, theirs = os.openpty()
    env = orga.env | {"TERM": "xterm-256color", "COLUMNS": "100"}
    with subprocess.Popen(
        [*COMMAND, *arguments], stdin=theirs, stdout=theirs, stderr=theirs, cwd=orga.folder, env=env
    ) as process:
        os.close(theirs)
        screen = b"".join(iter(lambda: _read(ours), b""))
        os.close(ours)
    return process.returncode, screen


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 65_536)
    except OSError:
        return b""
