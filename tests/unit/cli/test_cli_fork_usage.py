"""Usage errors of `rewind`, `fork` and `verify`, found before any server is asked: one line, exit code 2."""

from pathlib import Path

import pytest

from orga.client.cli.main import run_command
from orga.client.cli.steer.rewind import input_changes


@pytest.fixture(autouse=True)
def _in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ORGA_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("TEMPORAL_ADDRESS", "127.0.0.1:9")


FORK = ["fork", "x", "--to-iteration", "1"]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        pytest.param(["rewind", "x"], "Missing option '--to-iteration'", id="no iteration to rewind to"),
        pytest.param(["rewind", "x", "--to-iteration", "-1"], "'--to-iteration'", id="before the beginning"),
        pytest.param(["rewind", "x", "--to-iteration", "two"], "'--to-iteration'", id="no number"),
        pytest.param(["fork", "x"], "Missing option '--to-iteration'", id="no iteration to fork at"),
        pytest.param(["fork", "x", "--to-iteration", "-1"], "'--to-iteration'", id="fork before the beginning"),
        pytest.param([*FORK, "--set", "modle=x"], "did you mean 'model'", id="a misspelled key of the input"),
        pytest.param([*FORK, "--set", "max_iteration=3"], "did you mean 'max_iterations'", id="a misspelled setting"),
        pytest.param([*FORK, "--set", "recovery.max_attempt=3"], "'max_attempts'", id="a misspelled deep setting"),
        pytest.param([*FORK, "--set", "model"], "write --set key=value", id="no value"),
        pytest.param([*FORK, "--id", " "], "id ' ': must be one line, not empty", id="an empty id"),
        pytest.param(["verify", "x", "--journal", "gone"], "gone cannot be read", id="no such export"),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_2(
    capsys: pytest.CaptureFixture[str], arguments: list[str], says: str
) -> None:
    assert run_command(arguments) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.startswith("orga: ")
    assert says in shown.err
    assert shown.err.count("\n") == 1


def test_settings_go_to_the_input_or_to_its_config() -> None:
    pairs = ["model=openai:m", "tools=read_file, list_files", "max_iterations=9", "recovery.max_attempts=3"]
    assert input_changes(pairs) == {
        "model": "openai:m",
        "tools": ["read_file", "list_files"],
        "config": {"max_iterations": "9", "recovery": {"max_attempts": "3"}},
    }
    assert input_changes(["skills=look", "max_llm_calls=9", "max_iterations=3"]) == {
        "skills": ["look"],
        "config": {"max_iterations": "3", "max_llm_calls": "9"},
    }
