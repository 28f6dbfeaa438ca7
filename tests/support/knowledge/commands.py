"""`orga knowledge` in the test's own folder with an empty store."""

import json
from pathlib import Path
from typing import Any

import pytest

from orga.client.cli.main import run_command

Shown = pytest.CaptureFixture[str]


@pytest.fixture
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "shop"
    folder.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.setenv("ORGA_HOME", str(tmp_path / "home"))


def command_output(capsys: Shown, *arguments: str) -> str:
    """Run a command that must succeed, and return its standard output."""
    assert run_command(["knowledge", *arguments]) == 0, capsys.readouterr().err
    return capsys.readouterr().out


def command_json(capsys: Shown, *arguments: str) -> Any:
    """Return the JSON output of a command."""
    return json.loads(command_output(capsys, *arguments, "--json"))


def refusal_line(capsys: Shown, *arguments: str) -> str:
    """Run a command that must be refused in one line, and return that line."""
    assert run_command(["knowledge", *arguments]) == 2
    shown = capsys.readouterr()
    assert (shown.out, shown.err.count("\n")) == ("", 1)
    return shown.err


def search_results(capsys: Shown, *arguments: str) -> list[dict[str, Any]]:
    """Return all that a reader finds."""
    return command_json(capsys, "search", "--threshold", "0", "--limit", "100", *arguments)
