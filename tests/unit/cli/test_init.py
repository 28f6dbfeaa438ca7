"""`orga init` writes a file that reads back as chosen. It asks for trust of the chosen settings only."""

import io
import json
import re
import stat
import sys
from itertools import product
from pathlib import Path

import pytest

from orga.client.cli.main import run_command
from orga.client.config.file import load_config
from orga.client.config.starter import StarterChoices, starter_text

Shown = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def _in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ORGA_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("ORGA_TRUST", raising=False)
    (tmp_path / "home").mkdir()


ALL = [
    StarterChoices(model, base_url, write, web, programs, approval=not web)
    for (model, base_url), write, web, programs in product(
        [(None, None), ("openai:gpt-6.1-terra", None), ("openai-compatible:m", "http://localhost:8000/v1")],
        [False, True],
        [False, True],
        [(), ("git", "pytest")],
    )
]


@pytest.mark.parametrize("choices", ALL, ids=str)
def test_every_combination_is_read_back_as_it_was_chosen(choices: StarterChoices, tmp_path: Path) -> None:
    (tmp_path / "orga.toml").write_text(starter_text(choices))
    config = load_config(env={"ORGA_TRUST": "1"})
    assert config.models.default == choices.model
    assert config.models.base_urls == ({"openai-compatible": choices.base_url} if choices.base_url else {})
    assert [*config.agents["default"].tools[3:]] == choices.acting_tools
    assert config.tools.commands.allow == choices.programs
    assert {name: options.approval for name, options in config.tools.options.items()} == dict.fromkeys(
        choices.acting_tools, choices.approval
    )


@pytest.mark.parametrize("choices", ALL[:: len(ALL) - 1], ids=["least", "most"])
def test_every_commented_example_is_a_valid_setting(choices: StarterChoices, tmp_path: Path) -> None:
    text = starter_text(choices)
    examples = re.findall(r"^#([a-z_][\w.-]* = .*)$", text, re.MULTILINE)
    assert len(examples) >= 12
    for example in examples:
        (tmp_path / "orga.toml").write_text(text.replace(f"#{example}", example))
        load_config(env={"ORGA_TRUST": "1"})


def test_no_line_of_the_starter_file_is_too_long() -> None:
    assert max(map(len, starter_text(ALL[-1]).splitlines())) <= 120


def test_without_options_the_new_file_only_reads_and_needs_no_trust(tmp_path: Path, capsys: Shown) -> None:
    assert run_command(["init"]) == 0
    shown = capsys.readouterr()
    assert shown.out == "orga.toml\n"
    assert "next: orga doctor" in shown.err
    assert load_config().file == tmp_path / "orga.toml"
    assert not stat.S_IMODE((tmp_path / "orga.toml").stat().st_mode) & stat.S_IWOTH


def test_chosen_settings_are_trusted_until_they_change(tmp_path: Path, capsys: Shown) -> None:
    assert run_command(["init", "--write", "--commands", "git, pytest", "--json"]) == 0
    reported = json.loads(capsys.readouterr().out)
    assert reported["tools"] == ["write_file", "edit_file", "run_command"]
    assert [risk.partition(" = ")[0] for risk in reported["trusted"]] == [
        "agents.default.tools",
        "tools.commands.allow",
    ]
    options = load_config().tools.options
    assert options["write_file"].approval is options["edit_file"].approval is True
    file = tmp_path / "orga.toml"
    file.write_text(file.read_text().replace('"git"', '"sh"'))
    assert run_command(["config", "show"]) in {0, 2}
    assert run_command(["tools", "list"]) == 2
    assert "is not trusted in its present form" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("policies", "code"),
    [
        pytest.param("later", 0, id="rules written after init are trusted"),
        pytest.param("before", 2, id="rules that existed before init are not trusted"),
        pytest.param("none", 0, id="no rules"),
    ],
)
def test_a_new_file_is_still_trusted_once_a_server_is_set(
    policies: str, code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OPA_TOKEN")  # a setting of policy would make init record its trust in any case
    rules = tmp_path / "policies" / "clerk.cedar"
    if policies == "before":
        rules.parent.mkdir()
        rules.write_text("permit (principal, action, resource);")
    assert run_command(["init", "--yes"]) == 0
    if policies == "later":
        rules.parent.mkdir()
        rules.write_text("permit (principal, action, resource);")
    monkeypatch.setenv("TEMPORAL_ADDRESS", "127.0.0.1:7233")
    assert run_command(["tools", "list"]) == code


@pytest.mark.parametrize("kind", ["file", "dangling link", "folder"])
def test_an_existing_file_is_not_changed(kind: str, tmp_path: Path, capsys: Shown) -> None:
    file, elsewhere = tmp_path / "orga.toml", tmp_path / "elsewhere"
    match kind:
        case "file":
            file.write_text("# mine\n")
        case "dangling link":
            file.symlink_to(elsewhere)
        case _:
            file.mkdir()
    assert run_command(["init", "--yes"]) == 2
    assert "orga.toml: already exists and was not changed" in capsys.readouterr().err
    assert not elsewhere.exists()
    assert kind != "file" or file.read_text() == "# mine\n"


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--model", "gpt-4o"], "'gpt-4o' names no model: write provider:model"),
        (["--commands", "git status;/bin/sh"], "--commands 'status;/bin/sh': not a program name"),
        (["--base-url", "http://x/v1"], "Add --model"),
        (["--model", "ollama:x", "--base-url", "x"], "Write it like http://host:8000/v1"),
        (["--model", "ollama:x" + "\x1b[2J" * 3 + "y" * 300], "at most 200 characters"),
        (["gone"], "gone: is not a folder"),
    ],
)
def test_an_invalid_choice_is_refused_before_anything_is_written(
    arguments: list[str], says: str, tmp_path: Path, capsys: Shown
) -> None:
    assert run_command(["init", *arguments]) == 2
    assert says in capsys.readouterr().err
    assert not (tmp_path / "orga.toml").exists()


def test_print_shows_the_file_and_writes_nothing(tmp_path: Path, capsys: Shown) -> None:
    assert run_command(["init", "--model", "offline:extractive", "--print"]) == 0
    assert 'default = "offline:extractive"' in capsys.readouterr().out
    assert not (tmp_path / "orga.toml").exists()


def test_it_reports_a_missing_key_and_a_configuration_that_it_hides(
    tmp_path: Path, capsys: Shown, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    assert run_command(["init"]) == 0
    (tmp_path / "below").mkdir()
    capsys.readouterr()
    assert run_command(["init", "below", "-m", "openai:gpt-6.1-terra"]) == 0
    output = capsys.readouterr().err
    assert "before the first run: openai has no key: set OPENAI_API_KEY" in output
    assert f"{tmp_path / 'orga.toml'} does not apply here any more" in output
    assert "cd below && orga doctor" in output


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("typed", "arguments", "expected"),
    [
        pytest.param("\n\n\n\n", [], StarterChoices(), id="only the Enter key"),
        pytest.param(
            "gpt-4o\nollama:small\ny\nn\ngit status;\ngit pytest\n\n",
            [],
            StarterChoices("ollama:small", write=True, programs=("git", "pytest"), approval=True),
            id="an invalid answer is asked again",
        ),
        pytest.param(
            "y\nn\n",
            ["-m", "ollama:x", "--write", "--commands", ""],
            StarterChoices("ollama:x", write=True, web=True, approval=False),
            id="only what no option sets",
        ),
        pytest.param("", ["--yes"], StarterChoices(), id="--yes"),
    ],
)
def test_at_a_terminal_it_asks_for_each_choice(
    typed: str, arguments: list[str], expected: StarterChoices, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", _Terminal(typed))
    monkeypatch.setattr(sys, "stderr", _Terminal())
    assert run_command(["init", *arguments]) == 0
    assert (tmp_path / "orga.toml").read_text() == starter_text(expected)


def test_leaving_at_a_question_writes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", _Terminal(""))
    monkeypatch.setattr(sys, "stderr", _Terminal())
    assert run_command(["init"]) == 130
    assert not (tmp_path / "orga.toml").exists()
