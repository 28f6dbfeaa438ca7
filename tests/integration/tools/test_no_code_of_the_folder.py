"""No module from the user's working folder is imported, whether it was there before or is written during a run."""

import json
import os
import shutil
import subprocess
import sys
import uuid
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest
from temporalio.client import Client

from orga.own_code import ROOT
from tests.support.programs.installs import a_hostile_folder, an_install
from tests.support.programs.noted_folder import home
from tests.support.programs.orga_command import Orga, an_orga

__all__ = ["home"]

pytestmark = pytest.mark.timeout(400)
"""Each test runs a dozen commands as separate processes."""

ENTRY = "import sys; sys.path.remove(''); from orga.start import command; command()"
"""Works like the script `orga`, whose own folder replaces the working folder at the start of the path."""


def orga(orga: Orga, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", ENTRY, *arguments]
    return subprocess.run(command, cwd=orga.folder, env=orga.env, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("path", [str(ROOT), f"{ROOT}{os.pathsep}.", f"{ROOT}{os.pathsep}sub"])
def test_a_folder_with_modules_of_our_names_works_like_any_other(path: str, home: Path, tmp_path: Path) -> None:
    """The folder of every Temporal project has `workflows` and `activities`."""
    folder = a_hostile_folder(tmp_path)
    (folder / "sitecustomize.py").unlink()  # Python itself imports it if PYTHONPATH names the folder
    (folder / "sub" / "sitecustomize.py").unlink()
    (folder / "notes.md").write_text("The limit of a run is 25 iterations.")
    here = an_orga(folder, home, PYTHONPATH=path)
    ran = orga(here, "run", "What is the limit of a run?", "--json")
    assert json.loads(ran.stdout)["termination"]["reason"] == "completed", ran.stderr
    assert orga(here, "doctor").returncode == 0
    assert orga(here, "tools", "list").returncode == 0
    assert not (folder / "imported").exists()


async def test_a_run_uses_the_code_with_which_its_worker_started(client: Client, tmp_path: Path) -> None:
    """A developer of orga works in its clone, and a model rewrites the code that decides over the run."""
    install = an_install(tmp_path)
    (install / "notes.md").write_text("The quagga of the meadow eats 25 thistles.")
    queue = f"folder-{uuid.uuid4()}"
    with a_worker(install, client, queue):
        await run_to_its_answer(client, queue)
        rewritten = f"open({str(install / 'imported')!r}, 'a').write(__name__)\nraise SystemExit\n"
        for file in install.rglob("*.py"):
            file.write_text(rewritten)
        for folder in [*install.rglob("__pycache__")]:
            shutil.rmtree(folder)
        await run_to_its_answer(client, queue)
    assert not (install / "imported").exists()


async def run_to_its_answer(client: Client, queue: str) -> None:
    given = {"task": "What does the quagga of the meadow eat?"}
    ended = await client.execute_workflow("AgentWorkflow", given, id=f"folder-{uuid.uuid4()}", task_queue=queue)
    assert ended["termination"]["reason"] == "completed"
    assert "25 thistles" in ended["output"]


@contextmanager
def a_worker(install: Path, client: Client, queue: str) -> Generator[None]:
    """Run a worker of an install, in the folder of the install."""
    place = ["--address", client.service_client.config.target_host, "--namespace", client.namespace]
    command = [str(install / "orga" / "isolated.py"), "orga.worker", *place, "--task-queue", queue]
    worker = subprocess.Popen([sys.executable, "-I", *command], cwd=install, stderr=subprocess.DEVNULL)
    try:
        yield
    finally:
        worker.terminate()
        worker.wait()
