"""Commands around a run: the doctor, the server, the start of a worker, and the demos."""

import json
import os
import re
import signal
from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.programs.noted_folder import home, orga
from tests.support.programs.orga_command import ROOT, Orga, an_orga
from tests.support.programs.terminal import at_a_terminal

__all__ = ["home", "orga"]


def test_the_doctor_finds_no_fault(orga: Orga) -> None:
    done = orga("doctor", "--deep")
    assert done.code == 0
    assert [line[:2] for line in done.out.splitlines()] == ["✓ "] * 12


@pytest.mark.parametrize(
    ("config", "place", "remedy"),
    [
        pytest.param("[temporal]\nadress = 1\n", "config", "correct the named file", id="a typo"),
        pytest.param("[tools]\npython = ['no:where']\n", "tools", "correct [tools]", id="a function that is not there"),
        pytest.param("[agents.a]\nmodel = 'openai:x'\n", "agents.a.model", "another model", id="a model without a key"),
        pytest.param("[temporal]\naddress = '127.0.0.1:9'\n", "server", "start it or correct", id="no server"),
    ],
)
def test_the_doctor_shows_how_to_repair_a_fault(orga: Orga, config: str, place: str, remedy: str) -> None:
    (orga.folder / "orga.toml").write_text(config)
    done = orga("doctor", "--json")
    found = {check["name"]: check for check in json.loads(done.out)}
    assert (done.code, found[place]["ok"]) == (6, False)
    assert remedy in found[place]["remedy"]


def test_a_worker_that_cannot_start_reports_why(orga: Orga) -> None:
    (orga.folder / "orga.toml").write_text("[tools]\npython = ['no:where']\n")
    done = orga("run", "x")
    assert done.code == 6
    assert re.search(r"^orga: the worker ended at its start .*no module no.*\(log: .*\)$", done.err, re.MULTILINE)
    assert "Traceback" not in done.err


@pytest.mark.parametrize(
    ("config", "says"),
    [
        pytest.param("", "worker polls task queue", id="running"),
        pytest.param("[tools]\npython = ['no:where']\n", "orga-worker: .*no module no", id="without a tool"),
        pytest.param("[agents", "orga: .*not valid TOML", id="with a broken file"),
    ],
)
def test_a_worker_with_json_logs_writes_all_its_lines_to_stderr_as_json(orga: Orga, config: str, says: str) -> None:
    (orga.folder / "orga.toml").write_text(config)
    with orga.started("worker", "--json-logs") as worker:
        worker.line(says)
        worker.send(signal.SIGTERM)
        worker.code()
    assert worker.out == []
    found = [json.loads(line) for line in worker.err]
    assert all(list(line)[:4] == ["timestamp", "level", "logger", "message"] for line in found)
    assert any(re.search(says, line["message"]) for line in found)


def test_an_unwritable_home_is_exit_code_7(orga: Orga) -> None:
    (orga.folder / "file").write_text("")
    done = orga("run", "x", ORGA_HOME=str(orga.folder / "file" / "home"))
    assert done.code == 7
    assert "name another one in ORGA_HOME" in done.err


def test_setup_finds_the_attributes_of_the_embedded_server(orga: Orga) -> None:
    assert json.loads(orga("setup", "--json").out)["registered"] == []


def test_dev_runs_server_and_worker_and_stops_both(tmp_path: Path) -> None:
    orga = an_orga(tmp_path, tmp_path / "home")
    with orga.started("dev") as dev:
        dev.line(r"\[server\] 127.0.0.1:\d+, UI http://")
        first = dev.line(r"\[worker\] process (\d+)")[1]
        dev.line(r"\[worker\] worker polls")
        os.kill(int(first), signal.SIGKILL)
        assert dev.line(r"\[worker\] process (\d+) on")[1] != first
        assert orga("server", "--status").code == 0
        dev.line(r"\[worker\] worker polls")
        dev.send(signal.SIGINT)
        assert dev.code() == 0
    assert orga("server", "--status").code == 7


def test_the_server_command_shows_its_address(orga: Orga) -> None:
    with orga.started("server") as server:
        server.line(r"address +127.0.0.1:\d+")
        server.line(r"ui +http://")
        server.send(signal.SIGTERM)
        assert server.code() == 0
    status = orga("server", "--status", "--json")
    assert (status.code, json.loads(status.out)["embedded"]) == (0, True)


def test_the_demo_answers_from_the_projects_documents(orga: Orga) -> None:
    done = orga("demo", PATH="/usr/bin:/bin")
    assert done.code == 0
    assert re.search(r"^Here the command is \S*/orga instead of orga\.$", done.out, re.MULTILINE)
    assert re.search(r"`(README|ARCHITECTURE|docs/[\w-]+)\.md:\d+", done.out)
    assert "Terminated            completed" in done.out
    assert re.search(r"orga chat .*ask: When is an irreversible call repeated\?\n  kill -9 PID", done.out)


def test_a_chat_survives_the_crash_that_the_demo_suggests(orga: Orga) -> None:
    with at_a_terminal(orga, "chat") as terminal:
        terminal.shows("polls task queue")
        worker = re.search(r"worker (\d+) polls", terminal.text)
        assert worker
        at = terminal.shows("/help shows the commands")
        os.kill(int(worker[1]), signal.SIGKILL)
        terminal.types("When is an irreversible call repeated?\r")
        at = terminal.shows(f"worker {worker[1]} died; its log: ", at)
        terminal.shows("turn 1: completed", at)


def test_the_demo_of_a_goal_carries_out_steps_and_cites_existing_sources(orga: Orga) -> None:
    done = orga("demo", "--goal")
    assert done.code == 0, done.err
    assert re.search(r"^completed: \d+ iterations, \d+ tool calls", done.err, re.MULTILINE)
    answer, _, phases = done.out.partition("\nIts phases, folded from the history:\n")
    sources = re.findall(r"`([\w/.-]+\.md):(\d+)(?:-(\d+))?`", answer)
    assert sources
    for path, first, last in sources:
        lines = (ROOT / path).read_text().splitlines()
        quoted = [line.strip() for line in lines[int(first) - 1 : int(last or first)]]
        assert any(line and line in answer for line in quoted), path
    for did in (
        r"plan +[\d.]+ s +s1 search_text: look for \w+",
        r"✓ s\d+ search_text",
        r"✓ s\d+ read_file",
        r"done \(",
    ):
        assert re.search(did, phases), did
    goal = re.search(r"^run (goal-\S+)$", done.err, re.MULTILINE)
    assert goal is not None
    reported = json.loads(orga("steps", goal[1], "--json").out)
    assert (reported["ending"]["reason"], reported["phases"][0]["phase"]) == ("completed", "plan")


def test_the_demo_of_knowledge_answers_from_what_an_earlier_run_stored(orga: Orga) -> None:
    done = orga("demo", "--knowledge")
    assert done.code == 0, done.err
    first, _, second = done.out.partition("offline:extractive")
    answer, _, journal = second.partition("\nThe second run's journal, folded from its history:\n")
    assert "Never repeat an effect" in first
    assert "The closest passage is in `recalled knowledge:" in answer
    assert "is reported, not repeated" in " ".join(answer.split()).replace("> > ", "").replace("> ", "")
    assert "read_file" not in journal, "the second run must not read files"
    [stored] = re.findall(r"stored a memory: added (k\w+)", done.err)
    assert f"It recalled what the first run had stored: {stored}\n" in done.out
    command = re.search(r"orga (knowledge search .*)", done.out)
    folder = re.search(r"  cd (\S+)", done.out)
    assert command is not None
    assert folder is not None
    found = replace(orga, folder=Path(folder[1]))(*command[1].split(), "--json")
    assert [each["id"] for each in json.loads(found.out)] == [stored]
