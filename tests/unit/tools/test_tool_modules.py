"""Modules of tools are read once from the configuration's folder, with everything that they import from there."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from orga.activities.adapters.tools.python_function import PythonFunction, load_function
from orga.own_code import pin
from orga.start import module_command
from tests.support.tools.calls import result

MODULE = """
from orga.activities.tools_api import tool
import early_helper
from shelf.books import TITLE

@tool(effect="read_only", blocking={blocking})
def told(word: str) -> str:
    import late_helper
    from shelf import papers
    return " ".join([word, "{version}", early_helper.WORD, late_helper.WORD, TITLE, papers.TITLE])
"""


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """A folder that is not on `sys.path`. Its modules are unloaded after the test."""
    before, held = {*sys.modules}, dict(pin().loaders)
    yield tmp_path
    for name in {*sys.modules} - before:
        del sys.modules[name]
    pin().loaders.clear()
    pin().loaders.update(held)


def written(folder: Path, version: str, *, blocking: bool = False) -> None:
    (folder / "shelf").mkdir(exist_ok=True)
    (folder / "told_tool.py").write_text(MODULE.format(version=version, blocking=blocking))
    for file, name in (("early_helper", "WORD"), ("late_helper", "WORD"), ("shelf/books", "TITLE")):
        (folder / f"{file}.py").write_text(f"{name} = '{file}-{version}'\n")
    (folder / "shelf" / "papers.py").write_text(f"TITLE = 'papers-{version}'\n")


SAID = "a v1 early_helper-v1 late_helper-v1 shelf/books-v1 papers-v1"


@pytest.mark.parametrize("blocking", [False, True], ids=["in a thread", "in a process"])
async def test_code_written_after_the_start_is_never_run(folder: Path, blocking: bool) -> None:
    """This covers the module, a helper, an import within a call, and a package without `__init__.py`."""
    written(folder, "v1", blocking=blocking)
    tool = load_function("told_tool:told", [folder])
    written(folder, "v2", blocking=blocking)
    (folder / "shelf" / "__init__.py").write_text("raise SystemExit('written later')")
    assert await result(tool, word="a") == SAID
    assert await result(tool, word="a") == SAID


@pytest.mark.parametrize("name", ["json", "pydantic", "httpx", "re2"])
async def test_an_installed_package_wins_over_a_helper_with_its_name(folder: Path, name: str) -> None:
    (folder / f"{name}.py").write_text("raise SystemExit('of the folder')")
    (folder / "uses_it.py").write_text(f'import {name}\n\ndef f() -> str:\n    """F."""\n    return {name}.__file__\n')
    assert str(folder) not in await result(load_function("uses_it:f", [folder]))


async def test_a_module_missing_at_the_start_is_not_found_later(folder: Path) -> None:
    (folder / "plugin_user.py").write_text(
        'from importlib import import_module\n\ndef f() -> str:\n    """F."""\n'
        "    return import_module('plugin_of_then').X\n"
    )
    tool = load_function("plugin_user:f", [folder])
    (folder / "plugin_of_then.py").write_text("X = 'of then'")
    with pytest.raises(Exception, match="No module named 'plugin_of_then'"):
        await result(tool)


def test_the_digest_covers_all_code_that_was_read(folder: Path) -> None:
    written(folder, "v1")
    first = load_function("told_tool:told", [folder]).code_digest
    assert first == load_function("told_tool:told", [folder]).code_digest
    assert first.startswith("sha256:")
    (folder / "late_helper.py").write_text("WORD = 'another'")
    assert load_function("told_tool:told", [folder]).code_digest != first
    assert load_function("tests.support.tools.sample:weather").code_digest.startswith("sha256:")


def test_a_package_of_tools_can_use_relative_imports(folder: Path) -> None:
    (folder / "acme" / "money").mkdir(parents=True)
    (folder / "acme" / "__init__.py").write_text("")
    (folder / "acme" / "money" / "till.py").write_text(
        'from ..common import NAME\nfrom . import coins\n\ndef f() -> str:\n    """F."""\n    return NAME + coins.X\n'
    )
    (folder / "acme" / "common.py").write_text("NAME = 'n'")
    (folder / "acme" / "money" / "coins.py").write_text("X = 'x'")
    assert isinstance(load_function("acme.money.till:f", [folder]), PythonFunction)


def test_the_first_folder_with_the_module_wins(folder: Path) -> None:
    for name in ("a", "b"):
        (folder / name).mkdir()
        (folder / name / "twice_there.py").write_text(f'def f() -> str:\n    """{name}."""\n    return ""\n')
    folders = [folder / "none", folder / "b", folder / "a"]
    assert load_function("twice_there:f", folders).spec.description == "b."


@pytest.mark.parametrize(
    ("path", "source", "says"),
    [
        pytest.param("json:dumps", "def dumps(): ...", "two modules json", id="a name of the standard library"),
        pytest.param("sys:exit", "def exit(): ...", "two modules sys", id="a name of the interpreter"),
        pytest.param("httpx:get", "def get(): ...", "two modules httpx", id="a name of an installed package"),
        pytest.param("orga:f", "def f(): ...", "belongs to orga itself", id="the name of orga"),
        pytest.param("no_python:f", "def f(:", "is no Python", id="a syntax error"),
        pytest.param("not_there:f", "", "there is no module not_there in", id="no such module"),
    ],
)
def test_an_ambiguous_or_missing_module_is_refused(folder: Path, path: str, source: str, says: str) -> None:
    if source:
        (folder / f"{path.partition(':')[0]}.py").write_text(source)
    with pytest.raises(ValueError, match=f"tool '{path}'") as caught:
        load_function(path, [folder])
    assert says in str(caught.value)


def test_common_module_names_of_temporal_projects_are_free(tmp_path: Path) -> None:
    """A clone of orga also has folders with these names next to its package."""
    names = ("worker", "workflows", "activities", "client", "tests")
    for name in names:
        (tmp_path / f"{name}.py").write_text(f'def of_{name}() -> str:\n    """Tell."""\n    return "told"\n')
    python = [f"{name}:of_{name}" for name in names]
    (tmp_path / "orga.toml").write_text(f"[tools]\npython = {json.dumps(python)}\n")
    environment = {**os.environ, "ORGA_TRUST": "1"}
    command = module_command("orga.client.cli.main", "tools", "list", "--json")
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert {f"of_{name}" for name in names} <= {tool["name"] for tool in json.loads(done.stdout)}
