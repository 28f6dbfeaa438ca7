"""Runs of days and weeks, on the time-skipping server, and the time that they count."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

from temporalio.client import WorkflowHandle
from temporalio.testing import WorkflowEnvironment

from orga.client.testing.script import Step
from orga.testing import FakeTool, ScriptedModel
from orga.workflows.types.setup import Setup
from tests.support.runs.loop import WORKER_FACTS, Loop, Ran, a_loop

HOUR, DAY = timedelta(hours=1), timedelta(days=1)
WEEK = 7 * DAY
LONG = 60 * DAY
"""Longer than any run here, since the server limits every other timeout to the execution timeout."""

EACH_ITERATION = WORKER_FACTS.model_copy(update={"roll_over_events": 1})


@asynccontextmanager
async def a_long_loop(
    environment: WorkflowEnvironment, steps: Sequence[Step], *tools: FakeTool, setup: Setup = WORKER_FACTS
) -> AsyncGenerator[Loop]:
    """Run a worker whose runs may take weeks."""
    async with a_loop(environment.client, steps, *tools, setup=setup) as loop:
        loop.execution_timeout = LONG
        yield loop


async def time_left(handle: WorkflowHandle[Any, Any]) -> float:
    """Return the seconds that the run has left now.

    A query alone is answered by the clock of the last workflow task, so an unknown signal causes one first.
    """
    await handle.signal("what_time_is_it")
    return (await handle.query("status"))["budgets"]["time_s"]


def took(ran: Ran) -> timedelta:
    """Return the time from the first entry of the journal to the last, waits included."""
    return ran.journal[-1].timestamp - ran.journal[0].timestamp


def seen_by(loop: Loop) -> int:
    """Return the number of model calls."""
    assert isinstance(loop.provider, ScriptedModel)
    return len(loop.provider.seen)
