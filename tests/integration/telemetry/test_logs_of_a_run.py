"""Log lines of real runs name their run and iteration."""

import logging
import subprocess
import sys
import uuid
from pathlib import Path

import pytest
from temporalio.client import Client
from temporalio.worker import Worker

from orga.client.runners.workflows import our_runner
from orga.client.telemetry.logs import configure_logs
from orga.testing import FakeTool, answers, calls
from orga.workflows.types.tool_calls.gate import GateRequest, Verdict
from tests.support.programs.log_lines import lines, restored_logs
from tests.support.runs.logging_workflow import LoggingWorkflow
from tests.support.runs.loop import a_loop
from tests.support.values.policies import a_verdict

__all__ = ["restored_logs"]

pytestmark = pytest.mark.usefixtures("restored_logs")


class Broken:
    """A policy engine that fails at final answers."""

    is_embedded = True

    async def judge(self, proposal: GateRequest) -> Verdict:
        if proposal.call is None:
            raise RuntimeError("no engine")
        return a_verdict(True)


async def test_lines_of_tools_and_gate_name_run_and_iteration(
    client: Client, capsys: pytest.CaptureFixture[str]
) -> None:
    configure_logs(json=True)

    def body(arguments: object, context: object) -> str:
        logging.getLogger("a.tool").info("looking")
        return "ok"

    async with a_loop(client, [calls("look"), answers()], FakeTool("look", body), engine=Broken()) as loop:
        ran = await loop.run(max_iterations=2)

    found = [line for line in lines(capsys) if line["logger"] in {"a.tool", "temporalio.activity"}]
    assert [(line["message"], line["iteration"]) for line in found] == [
        ("looking", 1),
        ("the policy engine failed; denied", 2),
    ]
    assert {(line["workflow_id"], line["run_id"]) for line in found} == {(ran.handle.id, ran.handle.result_run_id)}
    assert "RuntimeError: no engine" in found[1]["exception"]


async def test_a_line_of_a_workflow_is_written_once_and_names_its_run(
    client: Client, capsys: pytest.CaptureFixture[str]
) -> None:
    configure_logs(json=True)
    queue = f"test-{uuid.uuid4()}"
    runner = our_runner()
    async with Worker(
        client, task_queue=queue, workflows=[LoggingWorkflow], workflow_runner=runner, max_cached_workflows=0
    ):
        handle = await client.start_workflow("Logging", id=queue, task_queue=queue)
        await handle.result()

    found = [line for line in lines(capsys) if line["logger"] == "temporalio.workflow"]
    assert [(line["message"], line["workflow_id"], line["run_id"]) for line in found] == [
        ("before 1", queue, handle.first_execution_run_id),
        ("after", queue, handle.first_execution_run_id),
    ]


TELLS = """
import asyncio, logging, sys
from temporalio import workflow
from temporalio.client import Client
from temporalio.worker import Worker
from orga.client.telemetry.start import forward_core_logs

@workflow.defn(sandboxed=False)
class Fails:
    @workflow.run
    async def run(self) -> None:
        raise RuntimeError("a defect")

async def has_failed(handle) -> bool:
    events = (await handle.fetch_history()).events
    return any(event.HasField("workflow_task_failed_event_attributes") for event in events)

async def main() -> None:
    forward_core_logs()
    forward_core_logs()
    client = await Client.connect(sys.argv[1])
    async with Worker(client, task_queue="fails", workflows=[Fails]):
        handle = await client.start_workflow(Fails.run, id="fails", task_queue="fails")
        while not await has_failed(handle):
            await asyncio.sleep(0.1)
        await handle.terminate()

asyncio.run(main())
"""


def test_messages_of_the_core_do_not_reach_stdout(client: Client, tmp_path: Path) -> None:
    """The core warns of a workflow task that fails."""
    program = tmp_path / "tells.py"
    program.write_text(TELLS)
    address = client.service_client.config.target_host
    ran = subprocess.run([sys.executable, program, address], capture_output=True, text=True, timeout=60, check=False)
    assert ran.stdout == ""
    assert "Failing workflow task" in ran.stderr
