"""A new version is deployed with the printed commands, and each run stays on the code with which it started."""

import json
import shlex
import signal
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from orga.workflows.types.names import LOOP_VERSION
from tests.support.programs.installs import an_install
from tests.support.programs.noted_folder import home, orga
from tests.support.programs.orga_command import Orga, Running

__all__ = ["home", "orga"]

PATIENCE_S = 60.0
HELD = "[tools.options.search_text]\napproval = true\n[tools.options.read_file]\napproval = true\n"


def wait_for_polling(worker: Running) -> tuple[str, list[str]]:
    """Wait until a worker polls. Return its build, and the command that makes its version current."""
    reported = worker.line(r"version: shop\.([a-z2-7]{6}); .* once it is current: temporal (worker deployment .*)")
    worker.line("worker polls")
    return reported[1], shlex.split(reported[2])


def deploy(temporal: str, command: Sequence[str]) -> None:
    """Run the command once the server has seen the worker."""
    deadline = time.monotonic() + PATIENCE_S
    while (done := subprocess.run([temporal, *command, "--yes"], capture_output=True, check=False)).returncode:
        assert time.monotonic() < deadline, done.stderr.decode()


def start_held_run(orga: Orga, run: str) -> None:
    """Start a run, and wait until it waits for a person."""
    assert orga("run", "What is the retry limit?", "--detach", "--id", run).code == 0
    deadline = time.monotonic() + PATIENCE_S
    while json.loads(orga("status", run, "--json").out)["phase"] != "waiting":
        assert time.monotonic() < deadline


def stop(worker: Running, number: signal.Signals = signal.SIGTERM) -> None:
    """Stop a worker as people do. Processes below a killed worker would continue to poll for a while."""
    worker.send(number)
    assert worker.code() == 0


def version_check(orga: Orga) -> dict[str, Any]:
    """Return the check, once the server has seen the worker's version."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        for check in json.loads(orga("doctor", "--json").out):
            if check["name"] == "version":
                return check
        assert time.monotonic() < deadline


def prepared(orga: Orga, run: str) -> dict[str, Any]:
    entries = map(json.loads, orga("journal", run, "--json").out.splitlines())
    return next(entry["data"] for entry in entries if entry["event"] == "Prepared")


def test_a_new_version_takes_new_runs_and_old_runs_stay_on_theirs(orga: Orga, temporal: str, tmp_path: Path) -> None:
    (orga.folder / "orga.toml").write_text(HELD)
    install = an_install(tmp_path / "older")
    code = install / "orga" / "workflows" / "agent.py"
    code.write_text(f"{code.read_text()}# an earlier version\n")
    older = Orga(orga.folder, orga.env | {"PYTHONPATH": str(install)})
    with older.started("worker", "--deployment", "shop") as first:
        one, first_command = wait_for_polling(first)
        alone = version_check(orga)
        assert (alone["ok"], "no worker takes new runs" in alone["detail"]) == (False, True)
        assert shlex.join(first_command) in alone["remedy"]
        deploy(temporal, first_command)
        start_held_run(orga, "of-one")
        start_held_run(orga, "left")
        with orga.started("worker", "--deployment", "shop") as second:
            two, second_command = wait_for_polling(second)
            deploy(temporal, second_command)
            assert one != two
            assert version_check(orga)["detail"] == f"new runs go to shop.{two}; workers of shop.{one} poll, too"
            start_held_run(orga, "of-two")
            for run, build in (("of-one", one), ("of-two", two)):
                assert orga("abort", run).code == 0
                acted = prepared(orga, run)
                assert (acted["build"], acted["loop_version"]) == (build, LOOP_VERSION)
            assert json.loads(orga("status", "of-one", "--json").out)["version"] == f"shop.{one}"
            assert f"version    shop.{two}\n" in orga("status", "of-two").out
            stop(second, signal.SIGUSR1)
        stop(first)
    lacking = orga("run", "What is the retry limit?")
    assert lacking.code == 6
    assert f"go to version shop.{two}, of which no worker polls" in lacking.err
    nobody = f"no worker of version shop.{one}"
    assert f"{nobody} answers" in orga("status", "left").err
    assert f"{nobody} answers" in orga("inbox").out
    refused = orga("approve", "left")
    assert refused.err.startswith(f"orga: {nobody} answered on task queue")
    assert "start one with: orga worker --deployment shop" in refused.err
    assert f"{nobody} polls" in orga("steer", "left", "wait").err
    [waiting] = [check for check in json.loads(orga("doctor", "--json").out) if check["name"] == f"version shop.{one}"]
    assert waiting["detail"] == "1 live run of it, such as left, and no worker"
    assert "ended      aborted" in orga("status", "of-one").out, "the history shows an ended run"


def test_an_invalid_deployment_name_is_bad_usage(orga: Orga) -> None:
    refused = orga("worker", "--deployment", "a.b")
    assert refused.code == 2
    assert "1 to 64 letters, digits" in refused.err
