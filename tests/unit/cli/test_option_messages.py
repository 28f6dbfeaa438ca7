"""Messages about options that fit only some forms of a command, and about empty results."""

import pytest

from orga.client.cli.main import run_command
from orga.client.cli.shown.status_text import RunOutcome


def test_a_status_without_a_task_has_no_line_for_it() -> None:
    assert RunOutcome("").lines_around(["phase      idle"]) == ["phase      idle"]
    assert RunOutcome("x").lines_around([]) == ["task       x"]


def test_print_cannot_be_combined_with_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["init", "--print", "--json"]) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err == "orga: --print: writes the text of the file, which is TOML. Remove --json\n"


@pytest.mark.parametrize(
    ("command", "says"),
    [
        ("chat", "the newest session of this folder that has not ended"),
        ("status", "the newest run of this folder"),
        ("logs", "With --list"),
    ],
)
def test_the_help_of_a_shared_option_describes_its_effect_in_each_command(
    command: str, says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_command([command, "--help"]) == 0
    assert says in " ".join(capsys.readouterr().out.replace("│", " ").split())
