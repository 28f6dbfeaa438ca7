"""The exit codes that a command can return are exactly those in docs/reference."""

import ast
import re
from collections.abc import Iterator, Set
from functools import cache
from pathlib import Path

import pytest

from docs.generate.commands import codes_of, names
from orga.client.cli.commands import COMMANDS, load_command
from orga.client.cli.exit_codes import COMMAND_EXIT_CODES, COMMANDS_WITHOUT_SERVER, EXIT_CODE_MEANINGS, ExitCode
from orga.client.cli.main import run_command
from tests.support.programs.orga_command import ROOT

CLI = "orga.client.cli"
SHARED = {f"{CLI}.{name}" for name in ("exit_codes", "command_errors", "main", "interrupts")}
"""Modules that end all commands."""
OF_AN_ENDING = {ExitCode.LIMIT, ExitCode.ABORTED, ExitCode.FAILED}

FUNCTIONS: dict[str, tuple[str, str]] = {}
"""The module of each command, and the name of its function there."""
HELP: dict[str, str] = {}
for _panel in COMMANDS.values():
    for _command in _panel:
        _found = load_command(_command)
        for _name, _each in (getattr(_found, "commands", None) or {"": _found}).items():
            _function = _each.callback
            FUNCTIONS[f"{_command.name} {_name}".strip()] = (_function.__module__, _function.__name__)
            HELP[f"{_command.name} {_name}".strip()] = _each.help


def source_file(module: str) -> Path:
    return ROOT.joinpath(*module.removeprefix("orga.").split(".")).with_suffix(".py")


@cache
def definitions(module: str) -> dict[str, ast.AST]:
    """Return the definitions of a module of the command line, by name."""
    found: dict[str, ast.AST] = {}
    for node in ast.parse(source_file(module).read_text(encoding="utf-8")).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found[node.name] = node
        targets = (
            node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
        )
        found.update({target.id: node for target in targets if isinstance(target, ast.Name)})
    return found


@cache
def imported(module: str) -> dict[str, tuple[str, str]]:
    """Return the origin of each name that a module imports from the command line, with an empty name for a module."""
    found: dict[str, tuple[str, str]] = {}
    for node in ast.walk(ast.parse(source_file(module).read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(CLI):
            for each in node.names:
                inner = f"{node.module}.{each.name}"
                origin = (inner, "") if source_file(inner).exists() else (str(node.module), each.name)
                found[each.asname or each.name] = origin
    return found


def used(module: str, node: ast.AST) -> Iterator[tuple[str, str]]:
    """Yield the definitions of the command line that a definition uses."""
    for each in ast.walk(node):
        if isinstance(each, ast.Name):
            origin = imported(module).get(each.id, (module, each.id))
        elif isinstance(each, ast.Attribute) and isinstance(each.value, ast.Name):
            origin = (imported(module).get(each.value.id, ("", ""))[0], each.attr)
        else:
            continue
        if origin[0] not in {"", *SHARED} and origin[1] in definitions(origin[0]):
            yield origin


def codes_in_source(command: str) -> set[ExitCode]:
    """Return the codes that the function of a command names, directly or through what it uses."""
    found, left, seen = set[ExitCode](), [FUNCTIONS[command]], set[tuple[str, str]]()
    while left:
        module, name = left.pop()
        seen.add((module, name))
        for node in ast.walk(definitions(module)[name]):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "ExitCode":
                found.add(ExitCode[node.attr])
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "ending_exit_code":
                found |= OF_AN_ENDING
        left += [each for each in used(module, definitions(module)[name]) if each not in {*seen, *FUNCTIONS.values()}]
    return found - {ExitCode.COMPLETED}


@pytest.mark.parametrize("command", names())
def test_every_code_that_a_command_returns_is_documented(command: str) -> None:
    assert codes_in_source(command) - COMMAND_EXIT_CODES.get(command, {}).keys() == set()


def test_the_codes_in_the_source_are_found() -> None:
    assert codes_in_source("models list") == {ExitCode.FAILED}
    assert codes_in_source("journal") == {ExitCode.FAILED}
    assert codes_in_source("chat") >= OF_AN_ENDING
    assert codes_in_source("completion") == set()


def test_only_shell_completion_returns_a_number_without_a_name() -> None:
    """Completion answers a shell's question and is no command."""
    found = [
        source_file
        for path in (ROOT / "client" / "cli").rglob("*.py")
        for source_file in functions_with_nameless_codes(path)
    ]
    assert found == ["main.py: complete_words"]


def functions_with_nameless_codes(path: Path) -> Iterator[str]:
    """Yield each function that returns a bare number, or a constant that is one. Signals start at 128."""
    module = ast.parse(path.read_text(encoding="utf-8"))
    numbers = {
        target.id
        for node in module.body
        if isinstance(node, ast.Assign) and _is_nameless_code(node.value, set())
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    for node in ast.walk(module):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and ast.unparse(node.returns or node) == "int":
            for each in ast.walk(node):
                if isinstance(each, ast.Return) and _is_nameless_code(each.value, numbers):
                    yield f"{path.name}: {node.name}"


def _is_nameless_code(value: ast.expr | None, numbers: Set[str]) -> bool:
    if isinstance(value, ast.IfExp):
        return _is_nameless_code(value.body, numbers) or _is_nameless_code(value.orelse, numbers)
    if isinstance(value, ast.Constant):
        return type(value.value) is int and 0 < value.value < 128
    return isinstance(value, ast.Name) and value.id in numbers


@pytest.mark.parametrize("command", [command for command, text in HELP.items() if "Exit codes: " in text])
def test_a_help_that_lists_codes_lists_those_of_the_reference(command: str) -> None:
    [listed] = re.findall(r"Exit codes: ([^.]+)\.", HELP[command])
    reported = {int(code) for code in re.findall(r"\b\d\b", listed)}
    for first, last in re.findall(r"(\d) to (\d)", listed):
        reported |= {*range(int(first), int(last) + 1)}
    assert reported - {130} == {code.value for code in codes_of(command)}


ID = ("nobody",)
GIVEN: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("attach", "status", "conversation", "open", "journal", "steps", "verify", "pause", "resume"), ID),
    **dict.fromkeys(("abort", "approve", "deny", "requeue", "policy explain", "audit runs"), ID),
    **dict.fromkeys(("run", "goal", "knowledge add", "knowledge search"), ("words",)),
    **dict.fromkeys(("steer", "add-context", "answer"), (*ID, "words")),
    **dict.fromkeys(("schedule show", "schedule pause", "schedule resume", "schedule trigger", "schedule delete"), ID),
    **dict.fromkeys(("rewind", "fork"), (*ID, "--to-iteration", "1")),
    "chat": (*ID, "--say", "words"),
    "schedule create": ("daily", "--task", "words", "--every", "1h"),
    "override": (*ID, "read_file", "{}"),
    "resolve": (*ID, "--skip"),
    "complete": (*ID, "--error", "words"),
    "extend": (*ID, "--max-iterations", "9"),
    "knowledge show": ("1",),
    "knowledge forget": ("--id", "1", "--yes"),
    "knowledge import": ("notes.md",),
    "tools new": ("mine",),
    "tools call": ("read_file", "path=notes.md"),
    "tools pin": ("nobody",),
    "models try": ("offline:extractive",),
    "completion": ("bash",),
    "server": ("--status",),
}
"""The arguments that a command needs to reach a server."""


OF_FRONT_ENDS = {"acp", "mcp-server"}
"""Commands that wait for their client before they ask a server."""


@pytest.mark.parametrize("command", [name for name in names() if name not in OF_FRONT_ENDS])
def test_a_command_that_asks_a_server_documents_the_code_for_no_server(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ORGA_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("TEMPORAL_ADDRESS", "127.0.0.1:9")
    (tmp_path / "notes.md").write_text("# Notes\n\nNothing.\n")
    code = run_command([*command.split(), *GIVEN.get(command, ())])
    assert (code == ExitCode.NO_SERVER) is (ExitCode.NO_SERVER in codes_of(command)), capsys.readouterr().err


def test_documented_codes_belong_to_existing_commands() -> None:
    assert (COMMAND_EXIT_CODES.keys() | COMMANDS_WITHOUT_SERVER | GIVEN.keys()) - set(names()) == set()
    assert EXIT_CODE_MEANINGS.keys() == set(ExitCode)


@pytest.mark.parametrize("command", [command for command, text in HELP.items() if "Exit code " in text])
def test_a_help_that_explains_a_code_explains_one_of_the_reference(command: str) -> None:
    reported = {int(code) for code in re.findall(r"Exit code (\d)", HELP[command])}
    assert reported <= {code.value for code in COMMAND_EXIT_CODES[command]}
