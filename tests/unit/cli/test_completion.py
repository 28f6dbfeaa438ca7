"""The Tab key completes in a real bash, and for the requests of zsh and fish."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from orga.client.cli.main import run_command

LINES = ["orga ru", "orga run --mo", "orga config ", "orga knowledge add --", "orga completion "]

PROGRAM = """
source <(orga completion bash)
for line in "$@"; do
  read -ra COMP_WORDS <<< "$line"
  [[ $line == *" " ]] && COMP_WORDS+=("")
  COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
  _orga_completion orga
  echo "${COMPREPLY[*]}"
done
complete -p orga
"""


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    """Return an environment whose `orga` is this one."""
    command = tmp_path / "orga"
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -c "from orga.client.cli.main import main; main()" "$@"\n')
    command.chmod(0o755)
    root = str(Path(__file__).parents[3])
    return os.environ | {"PATH": f"{tmp_path}:{os.environ['PATH']}", "PYTHONPATH": root, "ORGA_HOME": str(tmp_path)}


def test_bash_completes_commands_and_options(env: dict[str, str]) -> None:
    done = subprocess.run(
        ["bash", "--norc", "-c", PROGRAM, "bash", *LINES], env=env, capture_output=True, text=True, check=False
    )
    *found, registered = done.stdout.splitlines()
    assert found[0].split() == ["run"]
    assert found[1].split() == ["--model"]
    assert found[2].split() == ["show"]
    assert "--config" in found[3].split()
    assert found[4].split() == ["bash", "zsh", "fish"]
    assert registered == "complete -o default -F _orga_completion orga"
    assert done.stderr == ""


@pytest.mark.parametrize(
    ("shell", "asked", "expected"),
    [
        ("zsh", {"_TYPER_COMPLETE_ARGS": "orga ini"}, '"init":'),
        ("fish", {"_TYPER_COMPLETE_ARGS": "orga ini", "_TYPER_COMPLETE_FISH_ACTION": "get-args"}, "init\t"),
    ],
)
def test_requests_of_zsh_and_fish_are_answered(
    env: dict[str, str], shell: str, asked: dict[str, str], expected: str
) -> None:
    done = subprocess.run(
        ["orga"], env=env | asked | {"_ORGA_COMPLETE": f"complete_{shell}"}, capture_output=True, text=True, check=True
    )
    assert expected in done.stdout
    assert done.stderr == ""


@pytest.mark.parametrize(("shell", "begins"), [("zsh", "#compdef orga"), ("fish", "complete --command orga")])
def test_each_shell_has_its_script(shell: str, begins: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["completion", shell]) == 0
    assert capsys.readouterr().out.lstrip().startswith(begins)


def test_an_unknown_shell_must_be_named(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("SHELL", "/bin/tcsh")
    assert run_command(["completion"]) == 2
    assert "SHELL: unknown shell (tcsh). Name one of bash, zsh, fish" in capsys.readouterr().err
