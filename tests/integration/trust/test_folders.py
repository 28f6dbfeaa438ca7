"""All folders share the embedded server, and each run acts in the folder for which it was started."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.model.chat_server import Says, chat_server
from tests.support.programs.inline_command import an_inline_orga
from tests.support.programs.noted_folder import home
from tests.support.programs.orga_command import Orga

__all__ = ["home"]


def a_folder(home: Path, tmp_path: Path, name: str, **env: str) -> Orga:
    """Return a folder whose only file contains its name."""
    folder = tmp_path / name
    folder.mkdir()
    (folder / "notes.md").write_text(f"The secret word of this folder is {name}.")
    return an_inline_orga(folder, home, **env)


TASK = "What is the secret word of this folder?"


@pytest.mark.parametrize(
    "env",
    [
        pytest.param({}, id="the default queues"),
        pytest.param({"ORGA_TEMPORAL__TASK_QUEUE": "shared"}, id="both name one queue"),
    ],
)
def test_workers_of_two_folders_do_not_take_each_others_runs(env: dict[str, str], home: Path, tmp_path: Path) -> None:
    """Both workers run before the first run starts, and each run starts while the other worker is idle."""
    folders = {name: a_folder(home, tmp_path, name, **env) for name in ("alpha", "beta")}
    with folders["alpha"].started("worker") as one, folders["beta"].started("worker") as other:
        one.line("worker polls")
        other.line("worker polls")
        for name, orga in [*folders.items()] * 2:
            done = orga("run", TASK, "--json")
            assert f"is {name}." in json.loads(done.out)["output"], done.err
            assert f"it acts in {orga.folder}" in done.err


def test_a_run_shows_its_folder_and_waits_for_it(home: Path, tmp_path: Path) -> None:
    here, there = (a_folder(home, tmp_path, name) for name in ("here", "there"))
    run = here("run", TASK, "--detach").out.strip()
    start = f"cd {here.folder} && orga worker"
    with there.started("worker") as worker:
        worker.line("worker polls")
        assert start in there("status", run).err
        assert start in there("conversation", run).err
        assert start in there("extend", run, "--max-iterations", "99").err
        listed = {row["id"]: row["folder"] for row in json.loads(there("list", "--json").out)}
        assert listed[run] == str(here.folder)
        assert str(here.folder) in there("list").out
        with there.started("attach", run) as follower:
            follower.line(f"the run belongs to the folder {here.folder}: cd {here.folder} && orga attach {run}")
            done = here("attach", run, "--json")
            assert "is here." in json.loads(done.out)["output"], done.err
            assert follower.code() == 0
        worker.send(signal.SIGTERM)
        assert worker.code() == 0


def test_the_next_command_of_the_folder_takes_over_its_runs(home: Path, tmp_path: Path) -> None:
    here = a_folder(home, tmp_path, "first")
    left = here("run", TASK, "--detach").out.strip()
    assert here("run", TASK).code == 0
    assert here("attach", left).code == 0


def test_a_folder_keeps_its_runs_when_it_gets_a_configuration(home: Path, tmp_path: Path) -> None:
    here = a_folder(home, tmp_path, "plain")
    left, other = (here("run", TASK, "--detach").out.strip() for _ in range(2))
    assert here("init", "--yes").code == 0
    assert f"run {other}" in here("status", "--last").err.splitlines()
    assert "start one with: orga worker\n" in here("status", left).err
    assert "is plain." in json.loads(here("attach", left, "--json").out)["output"]
    (here.folder / "orga.toml").rename(here.folder / "moved.toml")
    done = here("attach", "--last", "--json", "--config", "moved.toml")
    assert "is plain." in json.loads(done.out)["output"], done.err


def test_each_shell_uses_the_models_that_it_names(home: Path, tmp_path: Path) -> None:
    """While the worker of one shell runs, prompts of the others do not reach its endpoint."""
    with chat_server(Says(["From A."])) as a, chat_server(Says(["From B."])) as b:
        env = {"ORGA_MODELS__DEFAULT": "openai-compatible:m", "OPENAI_COMPATIBLE_BASE_URL": a.url}
        one = a_folder(home, tmp_path, "shells", **env)
        other = an_inline_orga(one.folder, home, **env | {"OPENAI_COMPATIBLE_BASE_URL": b.url})
        with one.started("worker") as worker:
            worker.line("worker polls")
            assert other("run", "Ask B.").out == "From B.\n"
            assert (len(a.requests), len(b.requests)) == (0, 1)
            left = other("run", "Ask B, later.", "--detach")
            assert "no worker polls" in left.err
            run = left.out.strip()
            again = "OPENAI_COMPATIBLE_BASE_URL=… ORGA_MODELS__DEFAULT=…"
            assert f"start one with: {again} orga worker\n" in one("status", "--last").err
            with one.started("attach", run) as follower:
                follower.line(f"the run uses the models of its own shell: {again} orga attach {run}")
                follower.send(signal.SIGINT)
            done = other("attach", run)
            assert done.out == "From B.\n", done.err
            assert one("run", "Ask A.").out == "From A.\n"
            assert (len(a.requests), len(b.requests)) == (1, 2)


def test_status_and_doctor_show_folder_and_configuration(home: Path, tmp_path: Path) -> None:
    here = a_folder(home, tmp_path, "shown")
    (here.folder / "orga.toml").write_text("# one\n")
    with here.started("worker") as worker:
        worker.line("worker polls")
        run = here("run", TASK, "--json", "--id", "run-of-shown")
        assert (run.code, "orga.toml was changed" in run.err) == (0, False)
        place = json.loads(here("status", "run-of-shown", "--json").out)["workplace"]
        assert (place["root"], place["config"]) == (str(here.folder), str(here.folder / "orga.toml"))
        assert f"folder     {here.folder}" in here("status", "run-of-shown").out
        well = worker_check(here)
        assert well["ok"]
        assert f"of {here.folder}" in well["detail"]
        assert place["digest"][:8] in well["detail"]
        (here.folder / "orga.toml").write_text("# two\n")
        stale = worker_check(here)
        assert (stale["ok"], stale["remedy"]) == (False, "start the worker again")
        for command in ("run", "goal"):
            late = here(command, TASK, "--set", "max_iterations=1")
            assert "started before orga.toml was changed, or with another one; to use the file as it is" in late.err


def worker_check(orga: Orga) -> dict[str, str]:
    return next(check for check in json.loads(orga("doctor", "--json").out) if check["name"] == "worker")


def test_an_id_belongs_to_one_run(home: Path, tmp_path: Path) -> None:
    here = a_folder(home, tmp_path, "ids")
    assert here("run", TASK, "--id", "nightly").code == 0
    for more in ([], ["--detach"], ["--json"], ["--no-worker"]):
        refused = here("run", TASK, "--id", "nightly", *more)
        assert refused.code == 6
        assert "run 'nightly' has ended at " in refused.err
        assert "(completed)" in refused.err
        assert "--again" in refused.err
    again = here("run", TASK, "--id", "nightly", "--again", "--max-iterations", "1")
    assert again.code == 3, again.err
    assert "(max_iterations)" in here("run", TASK, "--id", "nightly").err
    assert here("run", TASK, "--again").code == 2
    forked = here("fork", "nightly", "--to-iteration", "1", "--id", "nightly")
    assert (forked.code, "has ended" in forked.err) == (6, True)


def test_the_library_sends_runs_to_the_workers_of_the_folder(home: Path, tmp_path: Path) -> None:
    here = a_folder(home, tmp_path, "library")
    program = (
        "import asyncio, os\nfrom orga.client.connect import connect\nfrom orga.client.runs.agents import start_agent\n"
        "async def main():\n    async with connect() as client:\n"
        f"        print((await (await start_agent(client, {TASK!r})).result()).output, flush=True)\n"
        "asyncio.run(main())\nos._exit(0)\n"  # the SDK's threads can abort an interpreter that exits normally
    )
    with here.started("worker") as worker:
        worker.line("worker polls")
        command = [sys.executable, "-c", program]
        done = subprocess.run(command, cwd=here.folder, env=os.environ | here.env, capture_output=True, check=True)
    assert b"is library." in done.stdout
