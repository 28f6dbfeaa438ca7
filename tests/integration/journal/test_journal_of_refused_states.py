"""A run that is refused because of its state argument or its fork has a journal like any other."""

import uuid
from typing import Any

import pytest
from temporalio.client import Client, WorkflowFailureError

from orga.client.history.chain import NoSuchIteration
from orga.client.journal.reading import read_journal
from orga.client.past.rewind import plan_rewind
from orga.testing import answers
from tests.support.runs.loop import a_loop

STATE: dict[str, Any] = {"input": {"task": "t"}, "origin": "o", "clock": {"started_at": "2020-01-01T00:00:00Z"}}


@pytest.mark.parametrize(
    ("given", "task", "detail"),
    [
        pytest.param([{"task": "t"}, {"forked_from": {"a": 1}}], "t", "carried state", id="no valid fork"),
        pytest.param([{"task": "t"}, {**STATE, "forked_from": {"a": 1}}], "t", "carried state", id="half a fork"),
        pytest.param([{"fork": "w"}], "", "fork: ", id="a fork without an object"),
        pytest.param(
            [{"fork": {"workflow_id": ["w"]}, "task": "t"}], "t", "fork.workflow_id", id="a fork of an invalid id"
        ),
        pytest.param(
            [{"fork": {"workflow_id": "nobody", "iteration": 1}}], "", "there is no run", id="a fork of an unknown run"
        ),
    ],
)
async def test_the_journal_shows_how_the_refused_run_ended(
    client: Client, given: list[Any], task: str, detail: str
) -> None:
    async with a_loop(client, [answers("never")]) as loop:
        handle = await client.start_workflow(
            "AgentWorkflow", args=given, id=f"agent-{uuid.uuid4()}", task_queue=loop.task_queue
        )
        with pytest.raises(WorkflowFailureError):
            await handle.result()
        started, ended = [entry async for entry in read_journal(client, handle.id)]
        with pytest.raises(NoSuchIteration):
            await plan_rewind(client, handle.id, 0)

    assert (started.event, started.data["task"]) == ("Started", task)
    assert (ended.event, ended.data["reason"]) == ("Terminated", "error")
    assert detail in ended.data["detail"]
