"""docs/testing.md and the tests of examples/desk, run as a reader would: by pytest, in folders of their own."""

import asyncio
import os
import re
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path

from tests.support.values.planted import planted

ROOT = Path(__file__).parents[2]
GUIDE = (ROOT / "docs/testing.md").read_text()
_FILE = re.compile(r"```\w+\n(?:#|//) ([\w/]+\.\w+)\n(.*?)```", re.DOTALL)


async def pytest_in(folder: Path, *arguments: str) -> tuple[int, str]:
    """Run pytest in a project's folder, with the plugins that are installed and nothing of this repository."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *arguments),
        cwd=folder,
        env=_environment(),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    output, _ = await process.communicate()
    return process.returncode or 0, output.decode()


def _environment() -> Mapping[str, str]:
    kept = {"PATH", "HOME", "ORGA_TEST_SERVER", "ORGA_TEMPORAL_CLI", "XDG_CACHE_HOME"} - planted().keys()
    return {name: value for name, value in os.environ.items() if name in kept}


async def test_the_guide_is_a_project_whose_tests_pass(tmp_path: Path) -> None:
    for name, text in _FILE.findall(GUIDE):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    (tmp_path / "histories").mkdir()
    shutil.copy(ROOT / "tests/replay/histories/answer.json", tmp_path / "histories")

    code, output = await pytest_in(tmp_path)

    assert (code, "5 passed" in output) == (0, True), output


async def test_the_example_tests_itself(tmp_path: Path) -> None:
    """By anyio, where the guide's project has pytest-asyncio."""
    shutil.copytree(ROOT / "examples/desk", tmp_path / "desk", ignore=shutil.ignore_patterns("__pycache__"))

    code, output = await pytest_in(tmp_path / "desk", "-p", "no:asyncio")

    assert (code, "3 passed" in output) == (0, True), output


UNUSED = """
import sys

def test_nothing_of_orga_is_loaded_but_its_plugin():
    ours = sorted(name for name in sys.modules if name.partition(".")[0] in {"orga", "temporalio", "pydantic"})
    assert ours == ["orga", "orga.client", "orga.client.testing", "orga.client.testing.pytest_plugin"]
"""

USED_UP = """
from orga.testing import answers

def test_it_is_not_used_up(scripted_model):
    scripted_model(answers("one"), answers("two"))

def test_it_fails_by_itself(scripted_model):
    scripted_model(answers("one"))
    assert False, "only this is told"
"""


async def test_a_project_that_does_not_use_it_pays_nothing(tmp_path: Path) -> None:
    (tmp_path / "test_unused.py").write_text(UNUSED)

    code, output = await pytest_in(tmp_path, "-p", "no:asyncio")

    assert (code, "1 passed" in output) == (0, True), output


async def test_a_script_that_is_not_used_up_fails_a_test_that_passes(tmp_path: Path) -> None:
    (tmp_path / "test_used_up.py").write_text(USED_UP)

    code, output = await pytest_in(tmp_path)

    assert code == 1
    assert "1 failed, 1 passed, 1 error" in output, output
    assert "2 steps of a script were not asked for" in output
