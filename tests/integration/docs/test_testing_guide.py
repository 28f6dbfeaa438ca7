"""docs/testing.md and the tests of examples/desk run as a reader would run them: by pytest, in their own folders."""

import asyncio
import os
import re
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.support.values.planted import planted

ROOT = Path(__file__).parents[3]
GUIDE = (ROOT / "docs/testing.md").read_text()
_FILE = re.compile(r"```\w+\n(?:#|//) ([\w/]+\.\w+)\n(.*?)```", re.DOTALL)


async def pytest_in(folder: Path, *arguments: str) -> tuple[int, str]:
    """Run pytest in a project's folder, with the installed plugins and nothing of this repository."""
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

    assert (code, "6 passed" in output) == (0, True), output


async def test_the_example_tests_itself(tmp_path: Path) -> None:
    """The example uses anyio, the guide's project pytest-asyncio."""
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
    assert False, "only this is reported"
"""

IN_REAL_TIME = """
import pytest

from orga import Agent
from orga.testing import FakeTool, answers, assert_called, calls

pytestmark = pytest.mark.anyio
CLERK = Agent("clerk", instructions="Help customers.", tools=[FakeTool("ship", "on its way")])
SERVERS = []


@pytest.fixture
def anyio_backend():
    return "asyncio"


@pytest.mark.parametrize("order", ["ORD-7", "ORD-8"])
async def test_orders_are_shipped(orga_local_environment, scripted_model, order):
    model = scripted_model(calls("ship", order=order), answers("Sent."))
    ran = await orga_local_environment.run(CLERK, f"Ship {order}.", model=model)
    assert_called(ran.journal, "ship", times=1, arguments={"order": order})
    assert "OrgaAgent" in (await ran.handle.describe()).search_attributes
    SERVERS.append(ran.handle.client.service_client.config.target_host)


async def test_one_server_is_for_all_tests_and_skips_no_time(orga_local_environment):
    assert not orga_local_environment.skips_time
    assert SERVERS == [orga_local_environment.client.service_client.config.target_host] * 2
"""

NO_SERVER = """
import os

os.environ["ORGA_TEMPORAL_CLI"] = "/nowhere/temporal"


def test_it_has_no_server(orga_local_environment):
    raise AssertionError
"""


async def test_a_project_that_does_not_use_the_plugin_starts_no_server(tmp_path: Path) -> None:
    (tmp_path / "test_unused.py").write_text(UNUSED)

    code, output = await pytest_in(tmp_path, "-p", "no:asyncio")

    assert (code, "1 passed" in output) == (0, True), output


@pytest.mark.parametrize("loops", ["asyncio", "anyio"])
async def test_all_tests_share_one_server_in_real_time(tmp_path: Path, loops: str) -> None:
    """With either plugin each test has its own event loop, and the server belongs to none of them."""
    (tmp_path / "test_orders.py").write_text(IN_REAL_TIME)
    (tmp_path / "pytest.ini").write_text("[pytest]\nasyncio_mode = auto\n")

    code, output = await pytest_in(tmp_path, "-p", "no:anyio" if loops == "asyncio" else "no:asyncio")

    assert (code, "3 passed" in output) == (0, True), output


async def test_a_missing_server_is_reported_only_to_a_test_that_asks_for_it(tmp_path: Path) -> None:
    (tmp_path / "test_no_server.py").write_text(NO_SERVER)

    code, output = await pytest_in(tmp_path)

    assert (code, "1 error in" in output) == (1, True), output
    assert "ORGA_TEMPORAL_CLI names /nowhere/temporal, which is no executable file" in output


async def test_an_unfinished_script_fails_a_passing_test(tmp_path: Path) -> None:
    (tmp_path / "test_used_up.py").write_text(USED_UP)

    code, output = await pytest_in(tmp_path)

    assert code == 1
    assert "1 failed, 1 passed, 1 error" in output, output
    assert "2 steps of a script were not asked for" in output
