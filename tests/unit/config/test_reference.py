"""docs/reference/ matches the code: every key, command, exit code, event and attribute is explained."""

import ast
import builtins
import re
from pathlib import Path

import pytest
import temporalio.exceptions

from docs.generate.api import MODULES, api_page, exported
from docs.generate.commands import names
from docs.generate.configuration import keys
from docs.generate.explained import page_of
from docs.generate.pages import FOLDER, pages
from docs.generate.source import docstring_text, module
from orga.client.cli.exit_codes import COMMAND_EXIT_CODES, EXIT_CODE_MEANINGS, ExitCode
from orga.client.cli.shown.narration import entry_lines
from orga.client.journal.event_types import EVENTS
from orga.client.journal.run_view import RunView
from orga.workflows.types import names as attributes
from tests.support.values.entries import an_entry

ROOT = Path(__file__).resolve().parents[3]


def test_the_reference_matches_the_code() -> None:
    written = {path.name: path.read_text(encoding="utf-8") for path in FOLDER.glob("*.md")}
    stale = sorted(name for name, text in pages().items() if written.get(name) != text)
    assert (stale, sorted(written)) == ([], sorted(pages())), "run: make reference"


def test_every_key_of_the_file_has_a_description() -> None:
    assert [key.path for key in keys() if not key.meaning] == [], "write a docstring below the field"


def test_every_key_of_the_file_is_explained_by_a_guide() -> None:
    assert [key.path for key in keys() if not key.page] == [], "write it down in a guide of docs/generate/explained.py"


def test_a_key_without_a_guide_is_found() -> None:
    assert page_of("policy", "engine") == "policies.md"
    assert page_of("policy", "no_such_key") == ""
    assert page_of("no_such_section", "engine") == ""


def test_keys_have_their_type_default_and_unit() -> None:
    known = {key.path: (key.kind, key.default, key.unit) for key in keys()}
    assert known["agents.NAME.config.timeout_s"] == ("number", "`300`", "s")
    assert known["agents.NAME.config.max_cost_usd"] == ("number", "—", "USD")
    assert known["policy.engine"][0] == '`"allow"`, `"cedar"`, `"code"`, `"default"`, `"opa"`'
    assert known["models.prices.NAME.input"][1] == "_needed_"


@pytest.mark.parametrize("name", MODULES)
def test_every_exported_name_has_a_docstring(name: str) -> None:
    assert [each for each, found in exported(name).items() if not docstring_text(found)] == []


def test_raised_errors_have_a_public_name() -> None:
    known = {name for each in MODULES for name in exported(each)} | {*dir(builtins), *dir(temporalio.exceptions)}
    raised = re.findall(r"^Raises:\n\n?((?:- .*\n)+)", api_page(), re.MULTILINE)
    names = set(re.findall(r"^- `(\w+)`", "".join(raised), re.MULTILINE))
    assert {"SessionBusy", "ConfigError"} <= names
    assert names - known == set()


@pytest.mark.parametrize(
    ("name", "own"),
    [
        pytest.param("AgentWorkflow", set[tuple[str, str]](), id="an agent, with its loop in the same module"),
        pytest.param("SessionWorkflow", {("send", "update"), ("close", "update"), ("close", "signal")}, id="a session"),
    ],
)
def test_a_workflow_documents_each_handler_once_by_its_sent_name(name: str, own: set[tuple[str, str]]) -> None:
    section = api_page().split(f"### `{name}`")[1].split("### ")[0]
    rows = re.findall(r"^\| `(\w+)` \| (signal|update|query) \|", section, re.MULTILINE)
    common = {
        ("steer", "signal"),
        ("approve", "update"),
        ("status", "query"),
        ("answer", "update"),
        ("answer", "signal"),
    }
    assert len(set(rows)) == len(rows)
    assert own | common <= set(rows)
    assert not [row for row in rows if row[0].startswith("take_") or row[0] in {"unknown", "run_until_stop", "finish"}]


def test_every_written_or_shown_event_is_in_the_vocabulary() -> None:
    run = RunView()
    raw = {
        name
        for name in EVENTS
        if [line.text for line in entry_lines(run.take(an_entry(name, later=1)))] == ["{'later': 1}"]
    }
    assert raw == set()
    assert _noted() - EVENTS.keys() == set()


def _noted() -> set[str]:
    """Return the events that workflow code notes by name."""
    found: set[str] = set()
    for path in (ROOT / "workflows").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "with_note":
                found |= {each.value for each in node.args[:1] if isinstance(each, ast.Constant)}  # pyright: ignore[reportAssignmentType]
    return found


def test_every_exit_code_has_a_meaning_and_its_commands() -> None:
    assert EXIT_CODE_MEANINGS.keys() == set(ExitCode)
    assert COMMAND_EXIT_CODES.keys() - set(names()) == set()
    rare = set(ExitCode) - {ExitCode.COMPLETED, ExitCode.USAGE, ExitCode.FAILED, ExitCode.NO_SERVER}
    assert rare <= {code for codes in COMMAND_EXIT_CODES.values() for code in codes}


def test_every_search_attribute_has_a_description() -> None:
    source = module("orga.workflows.types.names")
    named = {name for name, key in vars(attributes).items() if name.isupper() and key in attributes.KEYS}
    assert len(named) == len(attributes.KEYS)
    assert [name for name in sorted(named) if not docstring_text(source.members[name])] == []
