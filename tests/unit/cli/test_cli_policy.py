"""`orga policy check`, `test` and `schema`: their findings, their output and their exit codes."""

import json
from pathlib import Path
from typing import Any

import cedarpy
import pytest

from orga.client.cli.main import run_command
from tests.support.programs.orga_command import ROOT
from tests.support.values.policies import PERMIT_ALL, a_folder

EXAMPLES = ROOT / "examples" / "policies"
READING = '@id("reading") permit (principal, action == Action::"tool_call", resource == Tool::"read_file");'


@pytest.fixture(autouse=True)
def _in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


Shown = pytest.CaptureFixture[str]


def test_the_policies_of_the_working_directory_are_checked(tmp_path: Path, capsys: Shown) -> None:
    a_folder(tmp_path, a=READING, prod__b='@approval("eve") forbid (principal, action, resource);')
    assert run_command(["policy", "check"]) == 0
    shown = capsys.readouterr()
    assert shown.out.splitlines() == [
        "✓ reading: permit (policies/a.cedar:1)",
        "✓ policies/prod/b.cedar:1: unless approved forbid, with the approval of eve (policies/prod/b.cedar:1)",
    ]
    assert shown.err.startswith("2 policies, version ")


def test_one_policy_is_one_policy(tmp_path: Path, capsys: Shown) -> None:
    a_folder(tmp_path, a=READING)
    assert run_command(["policy", "check"]) == 0
    assert capsys.readouterr().err.startswith("1 policy, version ")


def test_a_problem_is_shown_with_its_remedy_and_exit_code_2(tmp_path: Path, capsys: Shown) -> None:
    a_folder(tmp_path, a=READING, prod__b="@aproval permit (principal, action, resource);")
    assert run_command(["policy", "check"]) == 2
    shown = capsys.readouterr()
    assert shown.out.splitlines()[1] == "✗ policies/prod/b.cedar:1: there is no annotation @aproval"
    assert shown.out.splitlines()[2].startswith("    → did you mean 'approval'?")
    assert shown.err.startswith("1 to fix: ")


def test_only_the_named_surface_is_checked(tmp_path: Path) -> None:
    a_folder(tmp_path, a=READING, prod__b="nonsense;", dev__c=PERMIT_ALL)
    assert [run_command(["policy", "check", "--surface", name]) for name in ("dev", "prod")] == [0, 2]


def test_a_check_is_written_as_json(tmp_path: Path, capsys: Shown) -> None:
    a_folder(tmp_path, a=f"{READING}\nnonsense;")
    assert run_command(["policy", "check", "policies", "--json"]) == 2
    found = json.loads(capsys.readouterr().out)
    assert (found["ok"], [policy["id"] for policy in found["policies"]]) == (False, ["reading"])
    assert [problem["place"] for problem in found["problems"]] == ["policies/a.cedar:2"]


@pytest.mark.parametrize(
    ("arguments", "files", "says"),
    [
        pytest.param(["check"], {}, "there are no policies. Put *.cedar files into policies/", id="no policies"),
        pytest.param(["check", "gone"], {}, "gone: is not a folder", id="no such folder"),
        pytest.param(
            ["check", "--surface", "../x"], {"a": READING}, "--surface '../x': use only letters", id="no plain name"
        ),
        pytest.param(["test"], {"a": READING}, "there is no *.test.toml", id="no tests"),
        pytest.param(["test", "gone"], {}, "gone: is not a folder", id="no such tests"),
        pytest.param(["test"], {"a": "nonsense;"}, "policies/a.cedar:1: cannot be parsed", id="broken policies"),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_2(
    tmp_path: Path, capsys: Shown, arguments: list[str], files: dict[str, str], says: str
) -> None:
    a_folder(tmp_path, **files)
    assert run_command(["policy", *arguments]) == 2
    shown = capsys.readouterr()
    assert (shown.out, says in shown.err, shown.err.count("\n")) == ("", True, 1), shown.err


def run_tests(root: Path, text: str, *arguments: str) -> int:
    """Run `orga policy test` over one table."""
    (a_folder(root, a=READING) / "a.test.toml").write_text(text)
    return run_command(["policy", "test", *arguments])


def test_a_failed_expectation_is_shown_with_exit_code_6(tmp_path: Path, capsys: Shown) -> None:
    text = """
    [[test]]
    name = "reading"
    tool = "read_file"
    expect = "allow"
    [[test]]
    name = "writing"
    tool = "write_file"
    expect = "allow"
    expect_policies = ["writing"]
    expect_reason = "because"
    """
    assert run_tests(tmp_path, text) == 6
    shown = capsys.readouterr()
    assert shown.out.splitlines() == [
        "✓ allow    reading (reading)",
        "✗ deny     writing (no policy permits write_file for agent default)",
        "    → expected allow, not deny",
        "    → expected policies writing, not none",
        "    → expected a reason with 'because', not 'no policy permits write_file for agent default'",
    ]
    assert shown.err == "2 tests, 1 failed\n"


def test_a_plan_is_tested_with_the_skills_and_tags_of_its_steps(tmp_path: Path, capsys: Shown) -> None:
    rule = """@id("paying") forbid (principal, action == Action::"plan", resource)
    when { context has plan && context.plan.skills.contains("pay") && context.plan.tags.contains("money") };"""
    a_folder(tmp_path, plans=f'@id("any") permit (principal, action == Action::"plan", resource);\n{rule}')
    text = """
    [tools.pay]
    tags = ["money"]
    [[test]]
    name = "looking"
    plan = [{ skill = "read_file" }, { skill = "researcher", goal = "look" }]
    expect = "allow"
    expect_policies = ["any"]
    [[test]]
    name = "paying"
    plan = [{ skill = "pay", arguments = { cents = 5 }, depends_on = ["s0"] }]
    purpose = "plan"
    expect = "deny"
    expect_policies = ["paying"]
    """
    assert run_tests(tmp_path, text) == 0, capsys.readouterr().out


def test_every_test_is_run_after_one_fails(tmp_path: Path, capsys: Shown) -> None:
    text = "test = [{name = 'a', answer = '', expect = 'deny'}, {name = 'b', answer = '', expect = 'allow'}]"
    assert run_tests(tmp_path, text) == 6
    assert capsys.readouterr().err == "2 tests, 1 failed\n"


def test_results_are_written_as_json(tmp_path: Path, capsys: Shown) -> None:
    text = "[[test]]\nname = 'answers'\nanswer = 'done'\nexpect = 'deny'\n"
    assert run_tests(tmp_path, text, "--json") == 0
    (found,) = json.loads(capsys.readouterr().out)
    assert (found["name"], found["ok"], found["outcome"], len(found["version"])) == ("answers", True, "deny", 12)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        pytest.param("[[test]]\nname = 'a'\nanswer = ''", "a.test.toml:1: expect: ", id="nothing is expected"),
        pytest.param("[[test]]\nname = 'a'\nexpect = 'allow'", "or an answer, or a plan", id="nothing is proposed"),
        pytest.param(
            "\n[[test]]\nname = 'a'\nanswer = ''\nexpect = 'deny'\n[[test]]\nname = 'b'\nexpected = 1",
            "a.test.toml:8: expected: unknown key; did you mean 'expect'", id="a misspelled key",
        ),
        pytest.param("[[test]\n", "cannot be read", id="no TOML"),
        pytest.param(
            "[[test]]\nname = 'a'\ntool = 'pay'\nexpect = 'deny'", "[tools.pay] effect", id="a tool that nobody knows"
        ),
    ],
)  # fmt: skip
def test_a_table_with_a_mistake_is_refused(tmp_path: Path, capsys: Shown, text: str, says: str) -> None:
    assert run_tests(tmp_path, text) == 2
    assert says in capsys.readouterr().err


def test_the_printed_schema_is_valid(capsys: Shown) -> None:
    assert run_command(["policy", "schema"]) == 0
    cedarpy.Schema.from_str(capsys.readouterr().out)


def test_the_example_policies_are_valid_and_pass_their_tests(capsys: Shown) -> None:
    assert [run_command(["policy", command, str(EXAMPLES)]) for command in ("check", "test")] == [0, 0]
    assert "untrusted-content: unless approved forbid" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("given", "outcome"),
    [
        pytest.param({}, "allow", id="before any untrusted content"),
        pytest.param({"taint": ["fetch_url"]}, "approval", id="after it"),
        pytest.param({"taint": ["fetch_url"], "approved_by": "anyone"}, "allow", id="after it, approved"),
        pytest.param({"taint": ["fetch_url"], "effect": "read_only"}, "allow", id="a read-only tool"),
    ],
)
def test_the_rule_about_untrusted_content_holds_on_its_own(
    tmp_path: Path, capsys: Shown, given: dict[str, Any], outcome: str
) -> None:
    """It holds even if everything else is permitted."""
    folder = a_folder(tmp_path, all=PERMIT_ALL, untrusted=(EXAMPLES / "untrusted.cedar").read_text())
    lines = [f"{key} = {json.dumps(value)}" for key, value in given.items() if key != "effect"]
    head = f"[tools.pay]\neffect = '{given.get('effect', 'irreversible')}'\n[[test]]\nname = 'pay'\ntool = 'pay'\n"
    (folder / "a.test.toml").write_text("\n".join([f"{head}expect = '{outcome}'", *lines]))
    assert run_command(["policy", "test"]) == 0, capsys.readouterr().out
