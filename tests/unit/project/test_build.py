"""The build of a worker is derived from its code, not from a number that must be incremented."""

import re
import subprocess
import sys
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

from orga.client.config.sections import OrgaConfig
from orga.client.workers.deployment import LIBRARIES, build_id, digest_of
from orga.client.workers.parts import configured_parts
from orga.own_code import sources
from orga.workflows.decisions.journal.entries import setup_data
from orga.workflows.types.names import LOOP_VERSION
from orga.workflows.types.setup import PrepareRequest
from tests.support.programs.installs import an_install
from tests.unit.project.test_layers import IN_THE_SANDBOX

CODE = [("a", b"1"), ("b", b"2")]
VERSIONS = {"rapidfuzz": "3.14.3"}


def test_a_build_is_short() -> None:
    """It is in three events of each task, and a leading dash would be an option of a command."""
    assert re.fullmatch("[a-z2-7]{6}", build_id())


@pytest.mark.parametrize(
    ("code", "versions"),
    [
        pytest.param([("a", b"1"), ("b", b"3")], VERSIONS, id="a changed module"),
        pytest.param([("a", b"1"), ("c", b"2")], VERSIONS, id="a renamed module"),
        pytest.param([("a", b"1")], VERSIONS, id="a removed module"),
        pytest.param([("a", b"12"), ("b", b"")], VERSIONS, id="code moved between modules"),
        pytest.param(CODE, {"rapidfuzz": "3.14.4"}, id="another version of a library"),
    ],
)
def test_different_code_is_a_different_build(code: list[tuple[str, bytes]], versions: dict[str, str]) -> None:
    assert digest_of(code, versions) != digest_of(CODE, VERSIONS)
    assert digest_of(code, versions) == digest_of(iter(code), dict(versions))


def test_all_own_code_is_part_of_the_build() -> None:
    named = dict(sources())
    assert {
        "orga.worker",
        "orga",
        "orga.workflows.agent",
        "orga.workflows.decisions.limits",
        "orga.activities.reason",
    } <= named.keys()
    assert b"class AgentWorkflow" in named["orga.workflows.agent"]
    assert digest_of(sources(), {}) == digest_of(sources(), {})


def test_every_library_of_workflow_code_is_part_of_the_build() -> None:
    """Third-party code also decides in workflows."""
    found = packages_distributions()
    named = {module: {name.lower().replace("_", "-") for name in found[module]} for module in IN_THE_SANDBOX}
    assert [module for module, names in named.items() if not names & {*LIBRARIES}] == []
    assert {*LIBRARIES} <= set[str]().union(*named.values())


def test_the_same_code_in_another_folder_is_the_same_build(tmp_path: Path) -> None:
    install = an_install(tmp_path)
    assert built(install) == build_id()

    limits = install / "orga" / "workflows" / "decisions" / "limits.py"
    limits.write_text(limits.read_text() + "# changed\n")
    assert built(install) != build_id()


def built(install: Path) -> str:
    asked = "from orga.client.workers.deployment import build_id; print(build_id())"
    reported = subprocess.run([sys.executable, "-c", asked], cwd=install, capture_output=True, text=True, check=True)
    return reported.stdout.strip()


async def test_a_run_records_build_and_loop_version_of_the_worker_that_prepares_it(tmp_path: Path) -> None:
    parts = configured_parts(OrgaConfig(), {}, tmp_path, knows_attributes=False)
    setup = await parts.agents.setup(PrepareRequest())
    assert (setup.build, setup.loop_version) == (build_id(), LOOP_VERSION)
    assert setup_data(setup)["loop_version"] == LOOP_VERSION >= 1
