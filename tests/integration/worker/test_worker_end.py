"""A worker that must end lets its calls end, or cuts them off for the next worker if it is asked to stop."""

from datetime import timedelta
from typing import Any

import pytest
from temporalio.client import Client

from orga.activities.ports import ToolContext
from orga.client.workers import ending
from orga.client.workers.ending import NO_LIMIT, WorkerEnd
from orga.testing import FakeTool, ScriptedModel, answers, calls
from tests.support.hold import Hold
from tests.support.runs.loop import a_loop


@pytest.mark.parametrize("held", ["tool", "model"])
async def test_calls_that_are_cut_off_are_made_again_by_the_next_worker(
    client: Client, monkeypatch: pytest.MonkeyPatch, held: str
) -> None:
    monkeypatch.setattr(ending, "SHUTDOWN_GRACE", timedelta(seconds=0.1))
    hold, end, attempts = Hold(), WorkerEnd(), 0

    async def body(arguments: dict[str, Any], context: ToolContext) -> str:
        nonlocal attempts
        attempts += 1
        return await hold.then("never") if (held, attempts) == ("tool", 1) else "done"

    tool = FakeTool("work", body, effect="idempotent")
    cut_off = [hold.step(calls("work"))] if held == "model" else []
    provider = ScriptedModel([*cut_off, calls("work"), answers()], repeats=True)
    options: dict[str, Any] = {"interceptors": [end], "graceful_shutdown_timeout": NO_LIMIT}
    async with a_loop(client, provider, tool, **options) as loop:
        handle = await loop.start()
        await hold.reached()
        assert str(end) == f"worker ends, after its calls: {'work' if held == 'tool' else 'reason'} of {handle.id}"
        end.stop()
    assert hold.cancelled.is_set()
    assert str(end) == "worker ends"
    async with a_loop(client, provider, tool, task_queue=loop.task_queue):
        ran = await loop.ended(handle)

    assert ran.result.termination.reason == "completed"
    assert ran.result.tool_calls.run == 1
    assert attempts == (2 if held == "tool" else 1)
