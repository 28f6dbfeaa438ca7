"""Mistakes of new users are found before any server is asked: one line, exit code 2, no traceback."""

import io
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from docs.generate.commands import names
from orga.client.cli.command_errors import error_exit_code
from orga.client.cli.commands import COMMANDS, CommandEntry, load_command
from orga.client.cli.exit_codes import ExitCode, UsageError, ending_exit_code
from orga.client.cli.main import run_command
from orga.client.cli.start.task_input import RunOptions, agent_input
from orga.client.config.file import load_config
from orga.client.config.trust.check import Untrusted
from orga.client.errors import ConfigError, NoAnswer, Refused, RunEnded, RunFailed, RunNotFound, ServerUnavailable
from orga.client.journal.file import UnwritableJournal
from orga.workflows.types.control import StopReason
from orga.workflows.types.models.providers import model_name_problem
from orga.workflows.types.record import InvalidInput

ALL = [command for commands in COMMANDS.values() for command in commands]


@pytest.fixture(autouse=True)
def _in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ORGA_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("TEMPORAL_ADDRESS", "127.0.0.1:9")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        pytest.param(["run", ""], "task: must not be empty", id="empty task"),
        pytest.param(["run", "  \n"], "task: must not be empty", id="blank task"),
        pytest.param(["run"], "Missing argument 'TASK'", id="no task"),
        pytest.param(["run", "x" * 200_001], "longer than 200000 bytes", id="a book for a task"),
        pytest.param(["run", "x", "--max-iterations", "-1"], "orga: --max-iterations -1: ", id="negative limit"),
        pytest.param(["run", "x", "--max-iterations", "many"], "'--max-iterations'", id="a limit that is no number"),
        pytest.param(["run", "x", "--timeout", "0"], "orga: --timeout 0.0: ", id="no time at all"),
        pytest.param(["run", "x", "--set", "max_iteration=3"], "did you mean 'max_iterations'", id="misspelled key"),
        pytest.param(["run", "x", "--set", "recovery.max_attempt=3"], "'max_attempts'", id="misspelled deep key"),
        pytest.param(
            ["run", "x", "--set", "max_iterations.0=3"], "--set max_iterations.0: unknown key", id="an item of a number"
        ),
        pytest.param(["run", "x", "--set", "temperature=hot"], "orga: --set temperature=hot: ", id="wrong type"),
        pytest.param(
            ["run", "x", "--set", "knowledge=1"], "--set knowledge=1: Input should be", id="a table that is none"
        ),
        pytest.param(["run", "x", "--set", "timeout_s"], "write --set key=value", id="no value"),
        pytest.param(["run", "x", "--trusted", "=1"], "write --trusted key=value", id="no key"),
        pytest.param(["run", "x", "--agent", ""], "agent: ", id="empty agent"),
        pytest.param(["run", "x", "--id", ""], "id '': must be one line", id="empty id"),
        pytest.param(["run", "x", "--config", "gone.toml"], "gone.toml, which is no file", id="no such file"),
        pytest.param(["run", "x", "--config", "x" * 5_000], "File name too long", id="no file at all"),
        pytest.param(["run", "x", "--id", "x" * 1_001], "id: must not be longer than 1000 bytes", id="an endless id"),
        pytest.param(
            ["run", "x", "--attach", "gone.png"], "--attach 'gone.png': cannot be read: No such file", id="no picture"
        ),
        pytest.param(
            ["run", "x", *["--attach", "gone.png"] * 21], "--attach there are 21, and the limit is 20", id="21 pictures"
        ),
        pytest.param(["goal", "x", "--attach", __file__], "is no PNG, JPEG, GIF, WebP or PDF", id="no picture at all"),
        pytest.param(["status", ""], "there is no run ''; `orga list`", id="the id of no run"),
        pytest.param(["attach", "é" * 501], "there is no run 'é", id="an id that no run can have"),
        pytest.param(["run", "x", "--set", "recovery=" + "[" * 9_000], "--set recovery=[[[", id="endless JSON"),
        pytest.param(
            ["goal", "x", "--set", "max_iterations=lots"], "orga: --set max_iterations=lots: ", id="of a goal"
        ),
        pytest.param(["chat", "--set", "timeout_s=-1"], "orga: --set timeout_s=-1: ", id="of a session"),
        pytest.param(["show", "x"], "'show'; did you mean 'orga status ID', or 'orga journal ID'?", id="show"),
        pytest.param(["kill", "x"], "'kill'; did you mean 'orga abort ID'?", id="kill"),
        pytest.param(["version"], "'version'; did you mean 'orga --version'?", id="version"),
        pytest.param(["ps"], "'ps'; did you mean 'orga list'?", id="ps"),
        pytest.param(["trust", "gone"], "orga: gone: is not a file. Name a configuration", id="nothing to trust"),
        pytest.param(["tools", "pin", "x"], "no MCP server 'x'; [mcp.servers] is empty", id="no server to pin"),
        pytest.param(["run", "x", "--bogus"], "--bogus", id="unknown option"),
        pytest.param(["run", "x", "--modle", "y"], "--modle; did you mean --model? (orga", id="misspelled option"),
        pytest.param(["run", "x", "--agnt=y"], "did you mean --agent, --", id="the nearest option comes first"),
        pytest.param(["list", "--jsn"], "--jsn; did you mean --json? (orga", id="misspelled flag"),
        pytest.param(
            ["policy", "test", "--jsn"],
            "did you mean --json? (orga policy test --help explains)",
            id="misspelled flag of an inner command",
        ),
        pytest.param(["rum"], "No such command 'rum'; did you mean 'run'", id="misspelled command"),
        pytest.param(["policy", "tset"], "'tset'; did you mean 'test'?", id="misspelled inner command"),
        pytest.param(["policy", "ls"], "'ls'. There are: check, test, explain, schema. (orga policy", id="of a group"),
        pytest.param(["qqqq"], "No such command 'qqqq'. (orga", id="unknown command"),
        pytest.param(["attach"], "'ID'. Name a run, or use --last for the newest. (orga attach --help", id="no id"),
        pytest.param(["list", "--limit", "0"], "'--limit'", id="a list of nothing"),
        pytest.param(["inbox", "--kind", "letter"], "'--kind'", id="no such kind of question"),
        pytest.param(["resolve", "x"], "choose one of --retry, --skip", id="no decision"),
        pytest.param(["resolve", "x", "--retry", "--abort"], "choose one of --retry", id="two decisions"),
        pytest.param(["resolve", "x", "--result", "@gone"], "file cannot be read (No such", id="no such result"),
        pytest.param(["resolve", "x", "--result", "x" * 100_001], "longer than 100000 bytes", id="a book for a result"),
        pytest.param(
            ["approve", "x", "--arguments", "{"], "--arguments: give a JSON object", id="arguments of no JSON"
        ),
        pytest.param(
            ["approve", "x", "--arguments", "[]"], "--arguments: give a JSON object", id="arguments in a list"
        ),
        pytest.param(["approve", "x", "--arguments", '{"a":1,"a":2}'], "'a' is used twice", id="an argument twice"),
        pytest.param(["approve", "x", "--arguments", "@none.json"], "the file cannot be read", id="no such file"),
        pytest.param(
            ["approve", "x", "--all", "--arguments", "{}"],
            "--arguments: apply to one call",
            id="arguments of all calls",
        ),
        pytest.param(["approve", "x", "a1", "--all"], "--all: cannot be combined with APPROVAL", id="one call and all"),
        pytest.param(
            ["deny", "x", "--by", ""], "--by: cannot determine your user name. Add --by NAME", id="decided by nobody"
        ),
        pytest.param(["extend", "x"], "name a limit to raise: --max-iterations, ", id="nothing to raise"),
        pytest.param(["extend", "x", "--max-iterations", "0"], "max_iterations: ", id="a limit of nothing"),
        pytest.param(["extend", "x", "--max-cost-usd", "nan"], "max_cost_usd: ", id="a limit that is no number"),
        pytest.param(
            ["requeue", "x", "1.0", "--all"], "--all: cannot be combined with LETTER", id="one letter and all"
        ),
        pytest.param(["requeue", "x", "--set", "a=1"], "Add --fork", id="settings of no fork"),
        pytest.param(["notify", "test"], "[notify] url: is not set, so nobody is notified", id="nobody to try it on"),
        pytest.param(["server", "--stop", "--status"], "cannot be combined", id="options against each other"),
        pytest.param(["demo", "--goal", "--knowledge"], "--goal: cannot be combined with --knowledge", id="two demos"),
        pytest.param(["journal", "x", "--exported", "gone"], "gone cannot be read", id="no such export"),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_2(
    capsys: pytest.CaptureFixture[str], arguments: list[str], says: str
) -> None:
    assert run_command(arguments) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.startswith("orga: ")
    assert shown.err.count("\n") == 1
    assert says in shown.err


SERVED = ["run", "attach", "chat", "list", "inbox", "status", "journal", "steer", "resolve", "setup", "worker", "dev"]


@pytest.mark.parametrize("command", SERVED)
def test_without_a_server_the_exit_code_is_7(capsys: pytest.CaptureFixture[str], command: str) -> None:
    arguments = {"run": ["x"], "steer": ["id", "x"], "resolve": ["id", "--skip"]}.get(command, ["id"])
    assert run_command([command, *([] if command in {"list", "inbox", "setup", "worker", "dev"} else arguments)]) == 7
    shown = capsys.readouterr().err
    assert shown.startswith("orga: the Temporal server at 127.0.0.1:9 does not answer (connection refused); ")
    assert shown.count("\n") == 1


def test_a_typo_in_the_file_names_its_line(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "orga.toml").write_text("[temporal]\nadress = 'x'\n")
    assert run_command(["list"]) == 2
    shown = capsys.readouterr().err
    assert f"orga: {tmp_path / 'orga.toml'}:2: temporal.adress: unknown key; did you mean 'address'?" in shown


def test_debug_shows_the_traceback(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ORGA_DEBUG", "1")
    run_command(["run", ""])
    assert "Traceback" in capsys.readouterr().err


def test_the_help_of_every_command_has_an_example(capsys: pytest.CaptureFixture[str]) -> None:
    names = [command.name for command in ALL if not command.target.endswith(":app")]
    assert len(names) > 30
    for name in names:
        assert run_command([name, "--help"]) == 0
        assert "Example: " in capsys.readouterr().out, name


@pytest.mark.parametrize(
    "words", [(), *(tuple(name.split()) for name in names()), ("policy",), ("tools",)], ids=" ".join
)
def test_the_help_brackets_an_argument_once_and_gives_no_flag_a_type(
    capsys: pytest.CaptureFixture[str], words: tuple[str, ...]
) -> None:
    assert run_command([*words, "--help"]) == 0
    shown = capsys.readouterr().out
    assert "[[" not in shown
    assert "]]" not in shown.replace("[ITERATION[.INDEX]]", "")
    assert "]...]" not in shown
    assert "bool" not in shown.lower()


def test_an_unknown_choice_is_reported_with_all_choices(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["completion", "powershell"]) == 2
    shown = capsys.readouterr().err
    assert shown.startswith("orga: Invalid value for 'SHELL': 'powershell' is not one of 'bash', 'zsh', 'fish'. ")


@pytest.mark.parametrize("command", ALL, ids=[command.name for command in ALL])
def test_the_help_of_a_command_begins_with_its_text_in_the_overview(command: CommandEntry) -> None:
    summary, _, details = load_command(command).help.partition("\n\n")
    assert summary == command.help
    assert summary not in details.replace("\n", " ")


@pytest.mark.parametrize("argument", ["--help", "--version"])
def test_help_and_version_load_no_heavy_module(argument: str) -> None:
    program = (
        "import sys; from orga.client.cli.main import run_command; run_command(sys.argv[1:]);"
        "print(*{'temporalio', 'pydantic', 'httpx'} & sys.modules.keys(), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", program, argument], capture_output=True, text=True, check=True)
    assert done.stderr.splitlines()[-1] == ""


def test_the_overview_is_grouped(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["--help"]) == 0
    shown = capsys.readouterr().out
    assert [shown.index(group) for group in ("Runs", "Steering a run", "Deciding for a run", "Server and workers")]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        pytest.param({}, {"task": "x"}, id="nothing given, nothing set"),
        pytest.param({"tools": ["a,b", "c"]}, {"task": "x", "tools": ["a", "b", "c"]}, id="tools by comma and again"),
        pytest.param({"tools": [""]}, {"task": "x", "tools": []}, id="no tools"),
        pytest.param(
            {"settings": ["temperature=null", "recovery.max_attempts=3"], "max_iterations": 4},
            {"task": "x", "config": {"max_iterations": 4, "temperature": None, "recovery": {"max_attempts": 3}}},
            id="settings by type",
        ),
        pytest.param(
            {"trusted": ["team=core", "admin=true", "limit=3"]},
            {"task": "x", "trusted_context": {"team": "core", "admin": True, "limit": 3}},
            id="facts, JSON where it is JSON",
        ),
    ],
)
def test_options_become_the_input_of_a_run(options: dict[str, Any], expected: dict[str, Any]) -> None:
    assert agent_input(RunOptions("x", **options)).model_dump(mode="json", exclude_unset=True) == expected


def test_the_task_is_read_from_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO("Grüße\n".encode())))
    assert agent_input(RunOptions("-")).task == "Grüße\n"


def test_a_task_that_is_not_utf8_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"ab\xff")))
    with pytest.raises(UsageError, match="not UTF-8 text \\(byte 2\\)"):
        agent_input(RunOptions("-"))


def test_an_argument_with_stray_bytes_becomes_valid_json() -> None:
    assert json.dumps(agent_input(RunOptions("a\udcffb")).task).isascii()


@pytest.mark.parametrize(
    ("reason", "code"),
    [
        ("completed", 0),
        ("max_iterations", 3),
        ("max_tokens", 3),
        ("max_cost", 3),
        ("timeout", 3),
        ("policy_denial", 4),
        ("aborted", 5),
        ("escalated", 6),
        ("error", 6),
    ],
)
def test_each_stop_reason_has_its_exit_code(reason: StopReason, code: int) -> None:
    assert ending_exit_code(reason) == code


@pytest.mark.parametrize(
    ("error", "code"),
    [
        pytest.param(InvalidInput("x"), ExitCode.USAGE, id="bad input"),
        pytest.param(RunNotFound("x"), ExitCode.USAGE, id="no such run"),
        pytest.param(RunFailed("InvalidInput: agent: x"), ExitCode.USAGE, id="input that the worker refused"),
        pytest.param(RunFailed("Workflow terminated"), ExitCode.FAILED, id="terminated by an operator"),
        pytest.param(Refused("no"), ExitCode.USAGE, id="a refused decision"),
        pytest.param(UnwritableJournal("x"), ExitCode.USAGE, id="nowhere to write"),
        pytest.param(RunEnded("x"), ExitCode.FAILED, id="too late"),
        pytest.param(NoAnswer("q"), ExitCode.FAILED, id="no worker answers"),
        pytest.param(ServerUnavailable("a", "b"), ExitCode.NO_SERVER, id="no server"),
        pytest.param(RuntimeError("x"), ExitCode.FAILED, id="a defect"),
    ],
)
def test_each_error_has_its_exit_code(error: Exception, code: int) -> None:
    assert error_exit_code(error) == code


def test_version_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["--version"]) == ExitCode.COMPLETED
    assert re.fullmatch(r"orga \d+\.\d+\.\d+\n", capsys.readouterr().out)


@pytest.mark.parametrize("command", [[], ["run"], ["tools"], ["tools", "list"], ["schedule", "create"], ["goal"]])
def test_h_is_short_for_help_in_every_command(capsys: pytest.CaptureFixture[str], command: list[str]) -> None:
    assert run_command([*command, "--help"]) == 0
    explained = capsys.readouterr().out
    assert run_command([*command, "-h"]) == 0
    assert capsys.readouterr().out == explained
    assert "-h" in explained


@pytest.mark.parametrize(
    ("name", "near"), [("opnai:x", "openai"), ("olama:x", "ollama"), ("antropic:x", "anthropic"), ("zzz:x", "")]
)
def test_an_unknown_provider_suggests_the_nearest_one(name: str, near: str) -> None:
    reported = model_name_problem(name)
    assert (f"did you mean {near!r}? write provider:model" in reported) == bool(near)
    assert "one of openrouter, openai" in reported


@pytest.mark.parametrize(
    ("toml", "says"),
    [
        ('[agents.a]\ntools = ["wrte_file"]', ":2: agents.a.tools: there is no tool 'wrte_file'; did you mean 'write_"),
        ('[agents.a]\ntools = ["pay"]\n[tools.commands]\nallow = ["git"]', "there is no tool 'pay'; there are: "),
        ('[tools]\npython = ["shop:refund"]\n[agents.a]\ntools = ["refnd"]', "did you mean 'refund'?"),
        ('[tools]\npython = ["shop:refund"]\n[agents.a]\ntools = ["pay"]', "is not trusted"),
        ('[mcp.servers.s]\ncommand = "s"\n[agents.a]\ntools = ["s_search", "s_*"]', "is not trusted"),
    ],
)
def test_a_misspelt_tool_is_reported_before_trust_is_asked_for(
    tmp_path: Path, toml: str, says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "orga.toml").write_text(toml)
    monkeypatch.setenv("ORGA_HOME", str(tmp_path / "home"))
    with pytest.raises(ConfigError, match=re.escape(says)) as caught:
        load_config(folder=tmp_path, env={})
    assert isinstance(caught.value, Untrusted) == (says == "is not trusted")
