"""The installed wheel, in a project with the layout of Temporal's tutorial."""

import json
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

from orga.own_code import ROOT
from tests.support.programs.noted_folder import home
from tests.support.programs.orga_command import Orga, an_orga

__all__ = ["home"]


THEIRS = ("worker", "workflows", "activities", "client")
"""Module names that such a project also uses."""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(folder)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    (found,) = folder.glob("*.whl")
    return found


@pytest.fixture(scope="module")
def environment(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a new environment with the wheel, and with the dependencies of this one."""
    folder = tmp_path_factory.mktemp("environment")
    uv, python = str(Path(sys.executable).parent / "uv"), folder / "bin" / "python"
    subprocess.run([uv, "venv", "--quiet", "--clear", "--python", sys.executable, str(folder)], check=True)
    install = [uv, "pip", "install", "--quiet", "--offline", "--no-deps", "--python", str(python), str(wheel)]
    subprocess.run(install, check=True)
    (packages,) = folder.glob("lib/python*/site-packages")
    (packages / "packages.pth").write_text(sysconfig.get_path("purelib"))
    return folder


@pytest.fixture
def project(home: Path, tmp_path: Path) -> Orga:
    for name in THEIRS:
        (tmp_path / f"{name}.py").write_text("THEIRS = True\n")
    (tmp_path / "notes.md").write_text("# Notes\n\nThe retry limit is five attempts.\n")
    orga = an_orga(tmp_path, home)
    orga.env.pop("PYTHONPATH", None)
    return orga


def test_the_wheel_contains_only_the_package(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    tops = {name.partition("/")[0] for name in names}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"orga"}
    assert {"orga/py.typed", "orga/worker.py", "orga/workflows/agent.py", "orga/client/cli/main.py"} <= {*names}


def test_a_project_keeps_its_own_names(environment: Path, project: Orga) -> None:
    looks = f"import orga, {', '.join(THEIRS)}; from orga import AgentWorkflow; print(orga.__file__, *("
    looks += ", ".join(f"{name}.THEIRS" for name in THEIRS) + "))"
    command = [str(environment / "bin" / "python"), "-c", looks]
    done = subprocess.run(command, cwd=project.folder, env=project.env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    place, *theirs = done.stdout.split()
    assert Path(place).is_relative_to(environment)
    assert theirs == ["True"] * len(THEIRS)


OWN = {
    "workflows.py": """
from datetime import timedelta
from temporalio import workflow
from orga.workflow import run_agent
from activities import shout

@workflow.defn
class Ask:
    @workflow.run
    async def run(self, question: str) -> str:
        result = await run_agent(question, config={"max_iterations": 8})
        return await workflow.execute_activity(shout, result.output, start_to_close_timeout=timedelta(seconds=20))
""",
    "activities.py": """
from temporalio import activity

@activity.defn
async def shout(text: str) -> str:
    return text.upper()
""",
    "client.py": """
import asyncio
import orga
from activities import shout
from workflows import Ask

async def main() -> None:
    async with orga.worker(workflows=[Ask], activities=[shout], task_queue="own") as client:
        question = "What is the retry limit?"
        print(await client.execute_workflow(Ask.run, question, id="asked", task_queue="own"))

if __name__ == "__main__":
    asyncio.run(main())
""",
}


def test_an_agent_works_within_an_application_with_such_modules(environment: Path, project: Orga) -> None:
    """The sandbox imports the project's own `workflows.py` and `activities.py` for its code, and ours for our code."""
    for name, code in OWN.items():
        (project.folder / name).write_text(code)
    command = [str(environment / "bin" / "python"), "client.py"]
    done = subprocess.run(command, cwd=project.folder, env=project.env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "FIVE ATTEMPTS" in done.stdout


def test_an_agent_runs_in_such_a_project(environment: Path, project: Orga) -> None:
    command = [str(environment / "bin" / "orga"), "run", "What is the retry limit?", "--json"]
    done = subprocess.run(command, cwd=project.folder, env=project.env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert result["termination"]["reason"] == "completed"
    assert "five attempts" in result["output"]
