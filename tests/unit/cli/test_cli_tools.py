"""`orga tools`: what it lists, writes, checks and calls, and its exit codes."""

import json
import re
import tomllib
from pathlib import Path

import pytest

from orga.activities.adapters.manifests.flaws import manifest_flaws
from orga.activities.adapters.manifests.manifest import Argument, CommandSection, Http, Manifest, Output
from orga.client.cli.main import run_command
from tests.support.programs.orga_command import ROOT
from tests.support.values.policies import a_folder

CONFIG = """
[tools]
manifests = ["tools/*.toml"]
[agents.default]
tools = ["greet", "read_file"]
"""
GREET = """
name = "greet"
description = "Greet somebody."
effect = "read_only"
tags = ["polite"]
[arguments.who]
type = "string"
[arguments.times]
type = "integer"
default = 1
[arguments.others]
type = "array"
items = { type = "integer" }
required = false
[command]
argv = ["echo", "hello", "{who}", "{times}", { when = "others", argv = ["{others}"] }]
"""
GUIDE = (ROOT / "docs" / "tool-manifests.md").read_text()

Shown = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def _in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def a_project(manifest: str = GREET, config: str = CONFIG) -> None:
    Path("tools").mkdir()
    Path("tools/greet.toml").write_text(manifest)
    Path("orga.toml").write_text(config)


def test_all_tools_are_listed_with_effect_source_and_options(capsys: Shown) -> None:
    a_project(config=CONFIG + "[tools.options.greet]\nmax_attempts = 3\n")
    assert run_command(["tools", "list", "--json"]) == 0
    found = {each["name"]: each for each in json.loads(capsys.readouterr().out)}
    greet = found["greet"]
    assert (greet["effect"], greet["source"]) == ("read_only", "tools/greet.toml")
    assert greet["options"] == {"timeout_s": 35.0, "tags": ["polite"], "max_attempts": 3}
    assert (found["read_file"]["source"], found["read_file"]["options"]) == ("built-in", {"verified": True})


def test_each_tool_is_listed_on_one_line(capsys: Shown) -> None:
    a_project()
    assert run_command(["tools", "list"]) == 0
    shown = capsys.readouterr()
    (line,) = [line for line in shown.out.splitlines() if line.startswith("greet ")]
    assert line.split() == ["greet", "read_only", "tools/greet.toml", "(timeout_s", "35.0,", "tags", "['polite'])"]
    assert shown.err.endswith("an agent has those that its configuration lists\n")


@pytest.mark.parametrize("kind", ["--command", "--http"])
def test_a_new_manifest_is_valid_and_is_never_overwritten(capsys: Shown, kind: str) -> None:
    assert run_command(["tools", "new", "look", kind]) == 0
    assert capsys.readouterr().out == "tools/look.toml\n"
    written = Path("tools/look.toml").read_text()
    assert run_command(["tools", "check", "tools/look.toml"]) == 0
    assert run_command(["tools", "new", "look"]) == 2
    assert "already exists and was not changed" in capsys.readouterr().err
    assert Path("tools/look.toml").read_text() == written


def test_the_commented_options_of_a_new_manifest_can_be_enabled() -> None:
    run_command(["tools", "new", "look", "--http"])
    text = Path("tools/look.toml").read_text()
    given = tomllib.loads(re.sub(r"^# (?=[\w\[]+ ?=|\[)", "", text, flags=re.MULTILINE).replace("json =", "# json ="))
    manifest = Manifest.model_validate(given, extra="forbid")
    assert list(manifest_flaws(manifest)) == []
    assert (manifest.approval, manifest.options.max_attempts, manifest.output.parser) == (True, 3, "json")


def test_a_new_command_tool_works_at_once(capsys: Shown) -> None:
    a_project(config='[tools]\nmanifests = ["tools/*.toml"]\n[agents.default]\ntools = ["count"]\n')
    Path("a.txt").write_text("one two")
    run_command(["tools", "new", "count"])
    capsys.readouterr()
    assert run_command(["tools", "call", "count", "file=a.txt"]) == 0
    assert capsys.readouterr().out == "2 ./a.txt\n"


def test_a_check_lists_valid_and_invalid_manifests(capsys: Shown) -> None:
    a_project()
    Path("tools/bad.toml").write_text('name = "bad"\ndescription = "B."\napproval = true\n')
    assert run_command(["tools", "check"]) == 1
    assert capsys.readouterr().out.splitlines() == [
        "✓ greet: read_only command (tools/greet.toml)",
        "✗ tools/bad.toml:1: a tool is either a command or a request",
        "    → give it one of [command] and [http]",
    ]
    assert run_command(["tools", "check", "tools/greet.toml"]) == 0


def test_a_check_is_written_as_json(capsys: Shown) -> None:
    a_project("nam = 1\n")
    assert run_command(["tools", "check", "--json"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert (found["ok"], found["tools"]) == (False, [])
    assert {problem["place"] for problem in found["problems"]} == {"tools/greet.toml:1"}


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        pytest.param(["check"], 1, "tools/greet.toml:3", id="checked"),
        pytest.param(["list"], 2, "tools/greet.toml:3", id="listed"),
        pytest.param(["call", "greet"], 2, "tools/greet.toml:3", id="called"),
    ],
)
def test_every_command_reports_a_broken_manifest(capsys: Shown, arguments: list[str], code: int, says: str) -> None:
    a_project('name = "greet"\ndescription = "G."\neffekt = 1\n')
    assert run_command(["tools", *arguments]) == code
    shown = capsys.readouterr()
    assert says in shown.out + shown.err


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        pytest.param(["check"], "there are no manifests", id="nothing to check"),
        pytest.param(["new", "a b"], "is not a valid tool name", id="no name"),
        pytest.param(["call", "gret"], "there is no tool 'gret'; there are: ", id="no such tool"),
        pytest.param(["call", "read_file", "path"], "'path' is no argument; write key=value", id="no value"),
        pytest.param(["call", "read_file", "--agent", "x"], "there is no agent 'x'", id="no such agent"),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_2(capsys: Shown, arguments: list[str], says: str) -> None:
    assert run_command(["tools", *arguments]) == 2
    shown = capsys.readouterr()
    assert (shown.out, says in shown.err, shown.err.count("\n")) == ("", True, 1), shown.err


def test_a_call_goes_through_schema_and_policy_and_shows_the_verdict(capsys: Shown) -> None:
    a_project()
    assert run_command(["tools", "call", "greet", "who=Ada =x", "others=2", "others=3"]) == 0
    shown = capsys.readouterr()
    assert shown.out == "hello Ada =x 1 2 3\n"
    assert shown.err == "gate (default, agent 'default'): allowed\n"


def test_a_call_is_written_as_json(capsys: Shown) -> None:
    a_project()
    assert run_command(["tools", "call", "greet", "who=Ada", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found == {"tool": "greet", "ok": True, "verdict": {"decision": "allow"}, "content": "hello Ada 1"}


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        pytest.param(["greet"], 2, "invalid: the arguments of greet do not fit", id="an argument is missing"),
        pytest.param(["greet", "who=a", "times=many"], 2, "invalid: the arguments of greet", id="no number"),
        pytest.param(["greet", "who=-n"], 6, "begins with a dash", id="refused by the tool"),
        pytest.param(["list_files"], 4, "denied: agent 'default' does not list list_files", id="not listed"),
        pytest.param(["read_file", "path=gone"], 6, "NotFound: gone", id="a tool that fails"),
    ],
)
def test_a_call_that_does_not_run_or_fails_shows_why(capsys: Shown, arguments: list[str], code: int, says: str) -> None:
    a_project()
    assert run_command(["tools", "call", *arguments]) == code
    shown = capsys.readouterr()
    assert shown.out == ""
    assert says in shown.err


def test_approve_does_not_override_a_denial(tmp_path: Path, capsys: Shown) -> None:
    a_project()
    a_folder(tmp_path, a='@id("no") forbid (principal, action, resource); permit (principal, action, resource);')
    assert run_command(["tools", "call", "greet", "who=Ada", "--approve", "--json"]) == 4
    shown = capsys.readouterr()
    assert json.loads(shown.out)["verdict"]["decision"] == "deny"
    assert "gate (cedar, agent 'default'): denied by no" in shown.err


def test_a_call_that_needs_approval_is_held(capsys: Shown) -> None:
    a_project(GREET.replace("tags", "approval = true\ntags"))
    assert run_command(["tools", "call", "greet", "who=Ada"]) == 4
    shown = capsys.readouterr()
    assert (shown.out, "held: greet is marked for approval" in shown.err) == ("", True)
    assert run_command(["tools", "call", "greet", "who=Ada", "--approve"]) == 0
    shown = capsys.readouterr()
    assert (shown.out, "allowed, approved by" in shown.err) == ("hello Ada 1\n", True)


def test_an_approval_that_nobody_needs_is_not_reported(capsys: Shown) -> None:
    a_project()
    assert run_command(["tools", "call", "greet", "who=Ada", "--approve"]) == 0
    assert capsys.readouterr().err == "gate (default, agent 'default'): allowed\n"


def test_the_approval_of_somebody_else_does_not_count(
    tmp_path: Path, capsys: Shown, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOGNAME", "ada")
    a_project()
    a_folder(tmp_path, a='@id("ask") @approval("nobody-by-this-name") permit (principal, action, resource);')
    assert run_command(["tools", "call", "greet", "who=Ada", "--approve"]) == 4
    shown = capsys.readouterr().err
    assert shown.endswith("; it needs the approval of nobody-by-this-name. You are ada\n")


def test_a_policy_can_use_the_approval_mark(tmp_path: Path, capsys: Shown) -> None:
    a_project(GREET.replace("tags", "approval = true\ntags"))
    text = "permit (principal, action, resource) unless { resource has approval && resource.approval };"
    a_folder(tmp_path, a=text)
    assert run_command(["tools", "call", "greet", "who=Ada"]) == 4
    assert "denied" in capsys.readouterr().err


def test_a_missing_secret_is_reported(capsys: Shown, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GREET_TOKEN", raising=False)
    a_project(GREET + 'env_from = ["GREET_TOKEN"]\n')
    assert run_command(["tools", "check"]) == 0
    assert run_command(["tools", "list"]) == 2
    assert "tools/greet.toml: the environment has no GREET_TOKEN" in capsys.readouterr().err


def test_the_example_tools_are_valid(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT / "examples" / "tools")
    assert run_command(["tools", "check"]) == 0


@pytest.mark.parametrize("block", re.findall(r"^```toml manifest\n(.*?)^```", GUIDE, re.DOTALL | re.MULTILINE))
def test_the_manifests_of_the_guide_are_valid(block: str) -> None:
    Path("guide.toml").write_text(block)
    assert run_command(["tools", "check", "guide.toml"]) == 0


def test_the_guide_documents_every_key() -> None:
    models = (Manifest, Argument, CommandSection, Http, Output)
    keys = {field.alias or name for model in models for name, field in model.model_fields.items()}
    assert sorted(key for key in keys if not re.search(rf"[`\[]{key}\b", GUIDE)) == []
