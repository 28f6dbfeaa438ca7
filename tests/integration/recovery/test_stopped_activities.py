"""Somebody pauses or resets the activity of a call that runs, for example in the Temporal UI."""

import asyncio
from typing import Any, Literal

import pytest
from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.workflowservice.v1 import PauseActivityRequest, ResetActivityRequest, UnpauseActivityRequest
from temporalio.client import Client, WorkflowHandle

from orga.activities.ports import ToolContext
from orga.testing import FakeTool, answers, calls
from tests.support.hold import wait_until
from tests.support.runs.loop import a_loop
from tests.support.runs.questions import tool_results_in
from tests.support.runs.sagas import an_agency, book, compensations, saga

Stop = Literal["pause", "reset"]
STOPS: tuple[Stop, ...] = ("pause", "reset")
ONE_ATTEMPT = {"strategy": "retry", "max_attempts": 1}


class _Held:
    """The body of a tool whose first call never ends by itself."""

    def __init__(self) -> None:
        self.calls, self.is_running = 0, asyncio.Event()

    async def __call__(self, arguments: dict[str, Any], context: ToolContext) -> str:
        self.calls += 1
        self.is_running.set()
        if self.calls == 1:
            await asyncio.sleep(3_600)
        return "done"


async def _stop(client: Client, handle: WorkflowHandle[Any, Any], held: _Held, how: Stop) -> None:
    """Stop the activity, and start it again if it is still there."""
    await asyncio.wait_for(held.is_running.wait(), 20)
    (pending,) = (await handle.describe()).raw_description.pending_activities
    named: dict[str, Any] = {
        "namespace": client.namespace,
        "execution": WorkflowExecution(workflow_id=handle.id),
        "id": pending.activity_id,
    }
    if how == "reset":
        await client.workflow_service.reset_activity(ResetActivityRequest(**named))
        return
    await client.workflow_service.pause_activity(PauseActivityRequest(**named))

    async def has_stopped() -> bool:
        waiting = (await handle.describe()).raw_description.pending_activities
        return not waiting or (waiting[0].paused and waiting[0].attempt > 1)

    await wait_until(has_stopped)
    if (await handle.describe()).raw_description.pending_activities:
        await client.workflow_service.unpause_activity(UnpauseActivityRequest(**named))


@pytest.mark.parametrize("how", STOPS)
async def test_an_irreversible_call_is_not_repeated_and_its_outcome_is_unknown(client: Client, how: Stop) -> None:
    held = _Held()
    pay = FakeTool("pay", held, "irreversible")
    async with a_loop(client, [calls("pay"), answers("x")], pay) as loop:
        handle = await loop.start()
        await _stop(client, handle, held, how)
        await loop.ended(handle)

    assert held.calls == 1
    assert "The outcome is unknown: it may have taken effect." in tool_results_in(loop)[0]


async def test_a_call_that_may_be_repeated_runs_again_after_a_pause(client: Client) -> None:
    held = _Held()
    async with a_loop(client, [calls("look"), answers("x")], FakeTool("look", held, "idempotent")) as loop:
        handle = await loop.start(recovery=ONE_ATTEMPT)
        await _stop(client, handle, held, "pause")
        await loop.ended(handle)

    assert (held.calls, tool_results_in(loop)) == (2, ["done"])


async def test_a_step_of_a_saga_that_may_have_acted_is_compensated(client: Client) -> None:
    held = _Held()
    tools = FakeTool("book", held, "idempotent"), FakeTool("cancel", effect="idempotent")
    async with an_agency(client, [saga(book("hotel")), answers("x")], *tools) as loop:
        handle = await loop.start(recovery=ONE_ATTEMPT)
        await _stop(client, handle, held, "reset")
        ran = await loop.ended(handle)

    assert compensations(ran) == [("cancel", "ok")]
