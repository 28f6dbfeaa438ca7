"""`orga` on Temporal's time-skipping test server, which lacks search attributes, lists of runs and pollers."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from temporalio.client import Client

from tests.support.parts.time_skipping import time_skipping
from tests.support.programs.orga_command import Done, Orga, an_orga

QUESTION = "What is the retry limit?"
ANSWER = "The retry limit is five attempts."


@pytest.fixture
async def server() -> AsyncIterator[Client]:
    async with time_skipping() as environment:
        yield environment.client


@pytest.fixture
def orga(server: Client, tmp_path: Path) -> Orga:
    """A folder whose configuration names the server."""
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "notes.md").write_text(f"# Notes\n\n{ANSWER}\n")
    (folder / "orga.toml").write_text(f'[temporal]\naddress = "{server.service_client.config.target_host}"\n')
    return an_orga(folder, tmp_path / "home")


async def command(orga: Orga, *arguments: str) -> Done:
    """Run a command, and assert that it prints no traceback."""
    done = await asyncio.to_thread(orga, *arguments)
    assert "Traceback" not in done.err
    assert "defect" not in done.err
    return done


async def test_a_worker_takes_a_run_from_start_to_result(orga: Orga, server: Client) -> None:
    with orga.started("worker") as worker:
        await asyncio.to_thread(worker.line, r"worker polls task queue 'orga'")
        result = await server.execute_workflow(
            "AgentWorkflow", {"task": QUESTION}, id="agent-plain", task_queue="orga", result_type=dict
        )
        assert worker.process.poll() is None
    assert (result["termination"]["reason"], ANSWER in result["output"]) == ("completed", True)
    (reported,) = [line for line in worker.out + worker.err if "search attributes" in line]
    assert reported.startswith("the server knows no search attributes")


async def test_a_command_starts_its_own_worker_and_the_run_can_be_inspected(orga: Orga) -> None:
    ran = await command(orga, "run", QUESTION, "--id", "agent-here", "--json")
    assert (ran.code, json.loads(ran.out)["termination"]["reason"]) == (0, "completed"), ran.err
    for arguments in (("status", "agent-here"), ("journal", "agent-here"), ("verify", "agent-here")):
        done = await command(orga, *arguments)
        assert (done.code, done.out != "") == (0, True), done


async def test_a_run_without_a_worker_is_reported(orga: Orga) -> None:
    started = await command(orga, "run", QUESTION, "--id", "agent-left", "--detach")
    assert (started.code, started.out) == (0, "agent-left\n"), started.err
    assert "does not report whether a worker polls task queue 'orga'" in started.err
    asked = await command(orga, "status", "agent-left")
    assert (asked.code, "this is the state in the history" in asked.err) == (0, True), asked.err


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        pytest.param(("list",), "ListWorkflowExecutions, which this server does not support", id="list"),
        pytest.param(
            ("list", "--running", "--agent", "a"), "which this server does not support", id="list of an agent"
        ),
        pytest.param(("inbox",), "which this server does not support", id="inbox"),
        pytest.param(("audit", "--query", "x = 1"), "which this server does not support", id="audit"),
        pytest.param(("setup",), "the server knows no search attributes", id="setup"),
    ],
)
async def test_an_unsupported_feature_of_the_server_is_reported_in_one_line(
    orga: Orga, arguments: tuple[str, ...], expected: str
) -> None:
    done = await command(orga, *arguments)
    assert (done.code, len(done.err.splitlines())) == (6, 1), done.err
    assert expected in done.err


async def test_the_doctor_reports_what_the_server_lacks(orga: Orga) -> None:
    done = await command(orga, "doctor", "--json")
    checks = {check["name"]: check for check in json.loads(done.out)}
    assert done.code == 0, done
    assert [name for name, check in checks.items() if check["warning"]] == ["search attributes", "worker", "runs"]
