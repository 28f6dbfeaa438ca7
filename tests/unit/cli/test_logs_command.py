"""`orga logs` shows the logs of this user's workers and server, without control sequences."""

import json
import os
from pathlib import Path

import pytest

from orga.client.cli.main import run_command
from orga.client.cli.workbench import server

Shown = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ORGA_HOME", str(tmp_path))
    return tmp_path


def a_log(home: Path, name: str, text: str, age_s: int = 0) -> None:
    path = home / name
    path.write_text(text)
    os.utime(path, (1_000_000 - age_s, 1_000_000 - age_s))


def test_the_newest_worker_log_is_shown_unless_another_is_named(home: Path, capsys: Shown) -> None:
    a_log(home, "worker-11.log", "old\n", age_s=60)
    a_log(home, "worker-12.log", "one\ntwo\x1b[2J\nthree\n")
    a_log(home, "server.log", "server says\n")
    assert run_command(["logs", "-n", "2"]) == 0
    assert capsys.readouterr().out == "two\\u001b[2J\nthree\n"
    assert run_command(["logs", "11"]) == 0
    assert capsys.readouterr().out == "old\n"
    assert run_command(["logs", "server"]) == 0
    assert capsys.readouterr().out == "server says\n"
    assert run_command(["logs", "--list", "--json"]) == 0
    assert [each["name"] for each in json.loads(capsys.readouterr().out)] == ["12", "11", "server"]


@pytest.mark.parametrize(("which", "says"), [("../x", "there is no log '../x'"), ("worker", "none yet: a command")])
def test_a_missing_log_is_reported(which: str, says: str, capsys: Shown) -> None:
    assert run_command(["logs", which]) == 2
    assert says in capsys.readouterr().err


def test_new_lines_are_followed_even_after_a_server_restarts_its_log(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "LOOK_S", 0.01)
    path = home / "server.log"
    path.write_text("before\n")
    lines, read = server._read_tail(path, 5)  # pyright: ignore[reportPrivateUsage]
    news = server._new_lines(path, read)  # pyright: ignore[reportPrivateUsage]
    with path.open("ab") as log:
        log.write("next\nhalf a li — ".encode()[:-2])
    assert (lines, next(news)) == (["before"], "next")
    with path.open("ab") as log:
        log.write("— ne\n".encode()[2:])
    assert next(news) == "half a li — ne"
    path.rename(home / "server.log.1")
    path.write_text("anew\n")
    assert next(news) == "anew"
