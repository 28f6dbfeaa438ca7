"""A run that is refused for the state beside its input has a journal like any other."""

import uuid
from typing import Any

import pytest
from temporalio.client import Client, WorkflowFailureError

from client.journal import read_journal
from tests.support.loop import a_loop
from tests.support.scripted import answers


@pytest.mark.parametrize(
    "state",
    [
        pytest.param({"forked_from": {"a": 1}}, id="hardly a fork"),
        pytest.param({"input": {"task": "t"}, "forked_from": {"workflow_id": "w"}}, id="half a fork"),
    ],
)
async def test_it_tells_how_the_run_ended(client: Client, state: dict[str, Any]) -> None:
    async with a_loop(client, [answers("never")]) as loop:
        handle = await client.start_workflow(
            "AgentWorkflow", args=[{"task": "t"}, state], id=f"agent-{uuid.uuid4()}", task_queue=loop.task_queue
        )
        with pytest.raises(WorkflowFailureError):
            await handle.result()
        started, ended = [entry async for entry in read_journal(client, handle.id)]

    assert (started.event, started.data["task"]) == ("Started", "t")
    assert (ended.event, ended.data["reason"]) == ("Terminated", "error")
    assert "forked state" in ended.data["detail"]
