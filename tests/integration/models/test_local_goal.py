"""A real small model pursues a goal. It may not be wise, but the goal ends and cites only what it read."""

from datetime import timedelta

import pytest
from temporalio.client import Client

from orga.activities.adapters.offline.local_model import LocalProvider
from orga.testing import FakeTool
from tests.support.model.named import Named
from tests.support.model.one_thread import one_thread
from tests.support.runs.goals import pursue
from tests.support.runs.loop import a_loop

__all__ = ["one_thread"]

NOTE = "The code word is heron."


@pytest.mark.timeout(600)
async def test_a_goal_of_a_small_model_ends_and_cites_only_what_it_read(client: Client) -> None:
    note = FakeTool("read_note", lambda arguments, context: NOTE)
    async with a_loop(client, Named(LocalProvider(), "smollm2"), note) as loop:
        loop.execution_timeout = timedelta(minutes=9)
        limits = {"max_iterations": 1, "max_llm_calls": 4, "timeout_s": 300, "max_plan_steps": 2}
        pursued = await pursue(loop, "Use read_note and tell the code word.", **limits)
    assert pursued.reason in {"completed", "max_iterations", "stuck", "timeout"}, pursued.result.termination
    assert pursued.result.usage.model_calls >= 1
    assert 0 <= pursued.result.confidence <= 1
    done = [step for step in pursued.result.steps if step.status == "done"]
    assert set(pursued.result.sources) <= {step.source for step in done}, "a cited source must have been read"
    if done:
        assert pursued.result.output
