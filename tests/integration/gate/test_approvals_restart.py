"""A held call survives the embedded server and every worker, because the server's file contains all of it."""

from collections.abc import Generator
from pathlib import Path

import pytest
from temporalio.client import Client, WorkflowUpdateFailedError

from orga.client.history.values import data_converter
from orga.client.server.embedded import ensure_server, stop_embedded_server
from orga.testing import FakeTool, answers, calls
from tests.support.parts.temporal import temporal_cli
from tests.support.runs.approvals import Asks, approval_argument, wait_for_held_calls
from tests.support.runs.loop import Loop, a_loop, a_worker
from tests.support.runs.questions import send_update, tool_results_in


@pytest.fixture(scope="module")
def executable() -> Path:
    return temporal_cli()


@pytest.fixture
def _home(executable: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Generator[None]:
    monkeypatch.setenv("ORGA_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("ORGA_TEMPORAL_CLI", str(executable))
    yield
    stop_embedded_server()


async def a_client() -> Client:
    endpoint = await ensure_server(lambda line: None)
    return await Client.connect(endpoint.address, data_converter=data_converter)


@pytest.mark.usefixtures("_home")
async def test_an_approval_survives_a_restart_of_the_server() -> None:
    pay, engine = FakeTool("pay", effect="irreversible"), Asks(approvers=("ada",))
    async with a_loop(await a_client(), [calls("pay", "pay"), answers()], pay, engine=engine) as before:
        handle = await before.start()
        first, second = await wait_for_held_calls(handle, 2)
        await send_update(handle, "approve", approval_argument(first))
    stop_embedded_server()
    loop = Loop(await a_client(), before.task_queue, before.provider)
    handle = loop.client.get_workflow_handle(handle.id)
    async with a_worker(loop, pay, engine=engine):
        assert [question["approval_id"] for question in await wait_for_held_calls(handle)] == [second["approval_id"]]
        with pytest.raises(WorkflowUpdateFailedError) as doubled:
            await send_update(handle, "deny", approval_argument(first))
        assert "approved already, by ada" in str(doubled.value.cause)
        await send_update(handle, "deny", approval_argument(second, reason="once is enough"))
        await loop.ended(handle)
    assert (len(pay.contexts), tool_results_in(loop)) == (1, ["ok", "[Policy denied] not approved: once is enough"])
