"""A policy with an unknown name protects nothing, so `orga policy check` reports it, using the tools' schemas."""

from pathlib import Path

import pytest

from orga.client.cli.main import run_command
from tests.support.programs.orga_command import ROOT
from tests.support.values.policies import a_folder

CONFIG = """
[agents.cashier]
tools = ["read_file", "pay", "write_file"]
delegates = [{ agent = "writer" }]
[agents.writer]
[tools]
manifests = ["tools/*.toml"]
[tools.options.read_file]
tags = ["reading"]
"""
PAY = """
name = "pay"
description = "Pay an order."
tags = ["money"]
arguments.order = { type = "string" }
arguments.cents = { type = "integer" }
[http]
method = "POST"
url = "https://pay.example.org/orders"
json = { order = "{order}", cents = "{cents}" }
"""
CALL = 'principal, action == Action::"tool_call", resource'
ON_PAY = f'{CALL} == Tool::"pay"'


@pytest.fixture(autouse=True)
def _in_a_project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "orga.toml").write_text(CONFIG)
    (tmp_path / "tools").mkdir()
    (tmp_path / "tools" / "pay.toml").write_text(PAY)


WRONG = [
    pytest.param(f'forbid ({CALL} == Tool::"pya");', "no tool 'pya'", "'pay'", id="a tool"),
    pytest.param(f'forbid ({CALL} == Tool::"Pay");', "no tool 'Pay'", "'pay'", id="a tool's case"),
    pytest.param(f'forbid ({CALL}) when {{ resource == Tool::"pays" }};', "no tool 'pays'", "'pay'", id="in when"),
    pytest.param(f'permit ({CALL}) unless {{ resource == Tool::"pays" }};', "no tool 'pays'", "'pay'", id="in unless"),
    pytest.param(f'forbid ({CALL}) when {{ resource.name == "pa" }};', "no tool 'pa'", "'pay'", id="by name"),
    pytest.param(
        f'forbid ({CALL}) when {{ [Tool::"pay", Tool::"refnd"].contains(resource) }};',
        "no tool 'refnd'",
        "there are",
        id="in a set",
    ),
    pytest.param(
        f'forbid ({CALL}) when {{ context.taint.contains("read_fil") }};',
        "no tool 'read_fil'",
        "'read_file'",
        id="taint",
    ),
    pytest.param(f'forbid ({CALL}) when {{ resource.tags.contains("mony") }};', "no tag 'mony'", "'money'", id="a tag"),
    pytest.param(
        'forbid (principal == Agent::"cashir", action, resource);', "no agent 'cashir'", "'cashier'", id="an agent"
    ),
    pytest.param(
        'permit (principal, action == Action::"delegate", resource == Agent::"writr");',
        "no agent 'writr'",
        "'writer'",
        id="an agent to delegate to",
    ),
    pytest.param(
        '@tools("read_fle") permit (principal, action == Action::"delegate", resource);',
        "no tool 'read_fle'",
        "'read_file'",
        id="tools of a delegation",
    ),
    pytest.param(
        f"forbid ({ON_PAY}) when {{ context.arguments has cent && context.arguments.cent > 100 }};",
        "pay has no argument 'cent'",
        "'cents'",
        id="an argument",
    ),
    pytest.param(
        f"forbid ({ON_PAY}) when {{ context.arguments has path }};",
        "pay has no argument 'path'",
        "there are: cents, order",
        id="an argument of another tool",
    ),
    pytest.param(
        f'forbid ({CALL}) when {{ resource == Tool::"pay" && context.arguments has "Cents" }};',
        "pay has no argument 'Cents'",
        "'cents'",
        id="an argument of a tool in the condition",
    ),
    pytest.param(
        f"forbid ({CALL}) when {{ context.arguments has pth }};",
        "no argument 'pth'",
        "'path'",
        id="an argument of no tool",
    ),
    pytest.param(
        'forbid (principal, action == Action::"delegate", resource) when { context.arguments has tsk };',
        "delegate has no argument 'tsk'",
        "'task'",
        id="of a delegation",
    ),
    pytest.param(
        f"forbid ({ON_PAY}) when {{ context.arguments has cents.amount && context.arguments.cents.amount > 1 }};",
        "pay has no argument 'cents.amount'",
        "there are",
        id="an attribute of a number",
    ),
    pytest.param(
        'forbid (principal, action == Action::"respond", resource) when { context.arguments has cents };',
        "no argument 'cents'",
        "there are: none",
        id="an argument of an answer",
    ),
    pytest.param(
        'forbid (principal, action == Action::"delegate", resource) '
        'when { context.arguments has agent && context.arguments.agent == "writr" };',
        "no agent 'writr'",
        "'writer'",
        id="an agent to delegate to, by the argument",
    ),
    pytest.param(
        'forbid (principal, action == Action::"plan", resource) '
        'when { context has plan && context.plan.skills.contains("writr") };',
        "no skill 'writr'",
        "'writer'",
        id="a skill of a plan",
    ),
    pytest.param(
        'forbid (principal, action == Action::"plan", resource) '
        'when { context has plan && context.plan.effects.contains("harmless") };',
        "'harmless' is never one of these",
        "known: read_only",
        id="an effect of a plan",
    ),
    pytest.param(f'permit ({CALL}) when {{ resource.name != "pya" }};', "no tool 'pya'", "'pay'", id="by another name"),
    pytest.param(
        f'forbid ({CALL}) when {{ resource.name like "Pay*" }};',
        "no tool is like",
        "there are: ask_user, delegate",
        id="a pattern without a match",
    ),
    pytest.param(f'forbid ({CALL} == Tool::"delegate");', "an action of its own", "delegate", id="no resource"),
    pytest.param(
        'forbid (principal, action == Action::"respond", resource == Run::"that");',
        "no run 'that'",
        "there are: this",
        id="another run",
    ),
    pytest.param(f"forbid ({CALL}) when {{ principal has name }};", "principal never has", "", id="of an agent"),
    pytest.param(f'forbid ({CALL}) when {{ resource.hasTag("money") }};', "hasTag", "resource.tags", id="Cedar's tags"),
    pytest.param(f'@inactive("false") forbid ({CALL});', "@inactive takes no text", "", id="not inactive"),
    pytest.param(f'@approval(" , ") permit ({CALL});', "names nobody", '""', id="nobody's approval"),
]


@pytest.mark.parametrize(("policy", "problem", "remedy"), WRONG)
def test_an_unknown_name_is_an_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], policy: str, problem: str, remedy: str
) -> None:
    a_folder(tmp_path, a=f"// a comment\n{policy}")
    assert run_command(["policy", "check"]) == 2
    shown = capsys.readouterr()
    assert "✓" not in shown.out
    assert shown.out.startswith("✗ policies/a.cedar:2: ")
    assert problem in shown.out
    assert remedy in shown.out


@pytest.mark.parametrize(
    "policy",
    [
        pytest.param(
            f"forbid ({ON_PAY}) when {{ context.arguments has cents && context.arguments.cents > 9 }};", id="pay"
        ),
        pytest.param(f"forbid ({CALL}) when {{ context.arguments has path }};", id="an argument of some tool"),
        pytest.param(f'forbid ({CALL}) when {{ resource.tags.containsAny(["money", "reading"]) }};', id="tags"),
        pytest.param('permit (principal == Agent::"default", action, resource);', id="the default agent"),
        pytest.param("forbid (principal, action, resource) when { context.trusted has anything };", id="trusted facts"),
        pytest.param(
            'permit (principal, action == Action::"terminate", resource) when { context.arguments has reason };',
            id="terminate",
        ),
        pytest.param(
            f'forbid ({CALL}) when {{ context.taint.contains("read_file") && context.arguments has cents }};',
            id="an argument with a source of taint",
        ),
        pytest.param(
            f'forbid ({CALL}) when {{ resource != Tool::"read_file" && context.arguments has cents }};',
            id="an argument of all but one tool",
        ),
        pytest.param(f'forbid ({CALL}) when {{ context.taint.contains("definitions of shop") }};', id="definitions"),
        pytest.param(f'forbid ({CALL}) when {{ resource.name like "*_file" }};', id="a pattern with matches"),
        pytest.param(
            'forbid (principal, action == Action::"plan", resource) when { context has plan '
            '&& context.plan.skills.containsAny(["pay", "writer"]) && context.plan.tags.contains("money") };',
            id="tools, agents and tags of a plan",
        ),
    ],
)
def test_known_names_are_accepted(tmp_path: Path, policy: str) -> None:
    a_folder(tmp_path, a=policy)
    assert run_command(["policy", "check"]) == 0


def test_tools_of_an_unavailable_server_are_not_checked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "orga.toml").write_text('[mcp.servers.bank]\ncommand = "/no/such/server"')
    a_folder(tmp_path, a=f'forbid ({CALL} == Tool::"bank_pay") when {{ context.arguments has any }};')
    assert run_command(["policy", "check"]) == 0
    assert "bank" in capsys.readouterr().err


def test_the_tests_of_a_folder_describe_its_tools(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["policy", "check", str(ROOT / "examples" / "policies")]) == 0, capsys.readouterr().out


def test_for_tools_in_code_the_tests_of_their_folder_are_suggested(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """No configuration knows the tools of `OrgaPlugin(tools=[…], policy=…)`."""
    a_folder(tmp_path, a='permit (principal, action == Action::"tool_call", resource == Tool::"settle");')
    (tmp_path / "policies" / "a.test.toml").write_text(
        '[tools.settle]\n[[test]]\nname = "n"\ntool = "settle"\nexpect = "allow"\n'
    )
    assert run_command(["policy", "check"]) == 2
    assert capsys.readouterr().err.endswith(f"describe them: orga policy check {tmp_path / 'policies'}\n")
    assert run_command(["policy", "check", "policies"]) == 0
