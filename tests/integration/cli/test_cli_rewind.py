"""`orga rewind`, `fork` and `verify` as users run them: the embedded server, a real worker, a terminal."""

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.programs.inline_command import an_inline_orga
from tests.support.programs.orga_command import COMMAND, Orga
from tests.support.programs.terminal import at_a_terminal

QUESTION = "What is the retry limit?"


@pytest.fixture(scope="module")
def orga(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Orga]:
    """Commands in a folder with a note, and a worker. The embedded offline model answers."""
    folder = tmp_path_factory.mktemp("project")
    (folder / "notes.md").write_text("# Notes\n\nThe retry limit is five attempts.\n")
    command = an_inline_orga(folder, tmp_path_factory.mktemp("home"))
    with command.started("worker") as worker:
        worker.line("polls task queue")
        yield command
    command("server", "--stop")


@pytest.fixture(scope="module")
def ended(orga: Orga) -> str:
    """The id of a run that has ended."""
    assert orga("run", QUESTION, "--id", "agent-ended").code == 0
    return "agent-ended"


def test_a_run_is_rewound_and_ends_again(orga: Orga) -> None:
    assert orga("run", QUESTION, "--id", "agent-again").code == 0
    orga("steer", "agent-again", "too late")
    rewound = orga("rewind", "agent-again", "--to-iteration", "1", "--steer", "look once more", "--json")
    assert rewound.code == 0, rewound.err
    reported = json.loads(rewound.out)
    assert (reported["id"], reported["to_iteration"], reported["interventions"], reported["effects"]) == (
        "agent-again",
        1,
        [],
        [],
    )
    back = orga("attach", "agent-again", "--json")
    assert (back.code, json.loads(back.out)["termination"]["reason"]) == (0, "completed")
    assert "look once more" in orga("journal", "agent-again").out
    assert orga("verify", "agent-again").code == 0


@pytest.mark.parametrize(
    ("typed", "code", "is_rewound"),
    [pytest.param(b"n\n", 130, False, id="no"), pytest.param(b"y\n", 0, True, id="yes")],
)
def test_a_rewind_at_a_terminal_asks_first(orga: Orga, typed: bytes, code: int, is_rewound: bool) -> None:
    run_id = f"agent-asked-{code}"
    assert orga("run", QUESTION, "--id", run_id).code == 0
    person, terminal = os.openpty()
    os.write(person, typed)
    command = [*COMMAND, "rewind", run_id, "--to-iteration", "0"]
    done = subprocess.run(
        command, stdin=terminal, capture_output=True, cwd=orga.folder, env=orga.env, timeout=60, check=False
    )
    os.close(person)
    os.close(terminal)
    assert (done.returncode, b"rewind agent-asked" in done.stderr) == (code, True), done.stderr
    orga("attach", run_id)
    assert ("rewind" in orga("journal", run_id).out) is is_rewound


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, -signal.SIGTERM)])
def test_a_signal_at_the_question_changes_nothing(orga: Orga, ended: str, number: int, code: int) -> None:
    with at_a_terminal(orga, "rewind", ended, "--to-iteration", "0") as terminal:
        terminal.shows("to the end of iteration 0\\?")
        terminal.process.send_signal(number)
        assert terminal.code() == code
    assert "rewind" not in orga("journal", ended).out


def test_a_fork_prints_its_id_and_runs_independently(orga: Orga, ended: str) -> None:
    forked = orga("fork", ended, "--to-iteration", "1", "--set", "max_iterations=1", "--id", "agent-forked")
    assert (forked.code, forked.out) == (0, "agent-forked\n"), forked.err
    assert orga("attach", "agent-forked").code == 3
    assert f"fork of {ended} at iteration 1" in forked.err


def test_verify_prints_a_line_for_each_check(orga: Orga, ended: str, tmp_path: Path) -> None:
    export = tmp_path / "run.jsonl"
    export.write_text(orga("journal", ended, "--json").out)
    fine = orga("verify", ended, "--journal", str(export))
    assert (fine.code, fine.err.splitlines()[-1]) == (0, "7 checks, nothing is wrong")
    assert [line.split()[:2] for line in fine.out.splitlines()] == [
        ["✓", name] for name in ("replay", "gate", "ending", "contexts", "journal", "counters", "export")
    ]


def test_verify_exits_6_when_something_is_wrong(orga: Orga, ended: str, tmp_path: Path) -> None:
    export = tmp_path / "run.jsonl"
    export.write_text("".join(orga("journal", ended, "--json").out.splitlines(keepends=True)[:-1]))
    done = orga("verify", ended, "--journal", str(export), "--json")
    assert done.code == 6
    found = json.loads(done.out)
    assert (found["ok"], [check["name"] for check in found["checks"] if not check["ok"]]) == (False, ["export"])


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        pytest.param(
            ["rewind", "ID", "--to-iteration", "99"],
            "no end of iteration 99 to go on from; there are 0 to",
            id="rewind",
        ),
        pytest.param(
            ["fork", "ID", "--to-iteration", "99"], "no end of iteration 99 to go on from; there are 0 to", id="fork"
        ),
        pytest.param(
            ["fork", "ID", "--to-iteration", "1", "--set", "timeout_s=-1"], "--set timeout_s=-1: ", id="setting"
        ),
        pytest.param(["rewind", "agent-nope", "--to-iteration", "1"], "there is no run 'agent-nope'", id="no such run"),
        pytest.param(["verify", "agent-nope"], "there is no run 'agent-nope'", id="nothing to verify"),
    ],
)
def test_an_impossible_request_is_reported_in_one_line(orga: Orga, ended: str, arguments: list[str], says: str) -> None:
    done = orga(*[ended if word == "ID" else word for word in arguments])
    assert (done.code, done.out, len(done.err.splitlines())) == (2, "", 1)
    assert says in done.err
