"""A command loads few modules, so that it starts fast."""

import subprocess
import sys

import pytest

SHOW = """
import sys
from orga.client.cli.commands import COMMANDS, load_command
name = sys.argv[1]
[load_command(each) for panel in COMMANDS.values() for each in panel if each.name == name]
print(*sys.modules, sep="\\n")
"""

NEVER = (
    "orga.workflows.phases",
    "orga.workflows.agent",
    "orga.workflows.goal",
    "orga.activities.adapters.models",
    "orga.worker",
    "temporalio.worker",
    "temporalio.testing",
    "temporalio.contrib.opentelemetry",
    "httpx",
    "rich.live",
)
"""Modules that execute runs, speak HTTP or draw."""


def modules_of(program: str, *arguments: str) -> set[str]:
    done = subprocess.run([sys.executable, "-c", program, *arguments], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


@pytest.fixture(scope="module")
def sdk_module_count() -> int:
    """Return the number of modules that the SDK's client loads by itself."""
    return len(modules_of("import sys, temporalio.client\nprint(*sys.modules, sep='\\n')"))


@pytest.mark.parametrize("command", ["list", "status", "steer"])
def test_a_client_command_loads_no_workflow_and_no_worker(command: str, sdk_module_count: int) -> None:
    loaded = modules_of(SHOW, command)
    assert not [name for name in loaded if name.startswith(NEVER)]
    assert len(loaded) < sdk_module_count * 1.75


@pytest.mark.parametrize("command", ["list", "steer"])
def test_a_command_without_suggestions_loads_no_fuzzy_matching(command: str) -> None:
    assert not [name for name in modules_of(SHOW, command) if name.startswith("rapidfuzz")]


def test_a_list_of_runs_loads_no_type_of_goals() -> None:
    assert not {"orga.workflows.types.state", "orga.workflows.types.goals.pursuit"} & modules_of(SHOW, "list")


def test_a_status_loads_the_type_of_a_goal_only_for_a_goal() -> None:
    assert "orga.workflows.types.goals.pursuit" not in modules_of(SHOW, "status")


def test_guidance_loads_no_input_type_of_goals_and_sessions() -> None:
    inputs = {"orga.workflows.types.goals.goal_input", "orga.workflows.types.sessions.session"}
    assert not inputs & modules_of(SHOW, "steer")


def test_the_version_loads_no_command() -> None:
    program = "import sys\nfrom orga.client.cli.main import run_command\nrun_command(['--version'])\n"
    loaded = modules_of(f"{program}print(*sys.modules, sep='\\n')")
    assert not [name for name in loaded if name.startswith(("temporalio", "pydantic.", "orga.client.cli.connection"))]


def test_the_console_starts_without_the_package_of_ag_ui() -> None:
    program = "import sys\nsys.modules['ag_ui'] = None\nimport orga.client.frontends.mounted\nprint(*sys.modules)"
    assert "orga.client.frontends.agui" in modules_of(program)


ORDER = """
import sys
from orga.client.cli import commands, main
from orga.client.workers import early_start

LATER = {"temporalio", "orga.client.cli.start.run"}
early_start.start_early = lambda: print("a worker begins,", LATER & {*sys.modules})
main.run_command(["run", "x", "--again"])
"""


def test_a_worker_starts_before_its_command_loads_anything() -> None:
    done = subprocess.run([sys.executable, "-c", ORDER], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["a worker begins, set()"]


START = """
import sys
from orga.client.config.policy import starter_policy
from orga.client.config.sections import OrgaConfig
starter_policy(OrgaConfig())
print(*sys.modules, sep="\\n")
"""


def test_the_start_of_a_run_loads_no_policy_engine() -> None:
    assert not [name for name in modules_of(START) if name.startswith("cedarpy")]
