"""The plan of a rewind relies on no state from the starter, as the run did not either."""

import uuid
from typing import Any

import pytest
from temporalio.client import Client

from orga.client.past.rewind import plan_rewind
from orga.testing import FakeTool, answers, calls
from tests.support.runs.loop import a_loop

FORGED: dict[str, Any] = {
    "input": {"task": "t"},
    "origin": "made up",
    "clock": {"started_at": "2020-01-01T00:00:00Z", "stopped_at": "2020-01-01T00:00:01Z"},
    "setup": {"agent": "default", "model": "m", "tools": [{"name": "send", "effect": "read_only"}]},
}


@pytest.mark.parametrize(
    "state",
    [
        pytest.param({"x": 1}, id="an unknown key"),
        pytest.param({**FORGED, "carried_by": "made up"}, id="as if carried by continue-as-new"),
    ],
)
async def test_external_effects_are_reported_whatever_state_a_starter_sent(client: Client, state: Any) -> None:
    send = FakeTool("send", effect="irreversible")
    async with a_loop(client, [calls("send"), answers()], send) as loop:
        handle = await client.start_workflow(
            "AgentWorkflow", args=[{"task": "t"}, state], id=f"agent-{uuid.uuid4()}", task_queue=loop.task_queue
        )
        await handle.result()
        plan = await plan_rewind(client, handle.id, 0)

    assert [effect.tool for effect in plan.effects] == ["send"]
