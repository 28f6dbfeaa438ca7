"""A circuit's minute, on the time-skipping server."""

from collections.abc import AsyncGenerator, Callable
from datetime import timedelta
from typing import Any

import pytest
from temporalio.client import WorkflowHandle
from temporalio.testing import WorkflowEnvironment

from orga.activities.ports import ToolError
from orga.client.testing.script import Step
from orga.testing import FakeTool, answers, calls
from orga.workflows.types.messages import Reply
from orga.workflows.types.tool_calls.breakers import BreakerOptions
from orga.workflows.types.tool_calls.tools import ToolOptions
from tests.support.hold import Hold
from tests.support.parts.time_skipping import time_skipping
from tests.support.runs.long_runs import EACH_ITERATION, a_long_loop
from tests.support.runs.loop import WORKER_FACTS, Ran
from tests.support.runs.questions import tool_results_in
from tests.support.runs.waits import wait_until_paused


@pytest.fixture(scope="module")
async def environment() -> AsyncGenerator[WorkflowEnvironment]:
    async with time_skipping() as environment:
        yield environment


CHAINED = [pytest.param(False, id="in one run"), pytest.param(True, id="across continue-as-new")]


def guarded(body: Callable[[int], str]) -> FakeTool:
    """Return a tool whose circuit opens for a minute after three failures. `body` gets the number of the call."""
    options = ToolOptions(max_attempts=1, breaker=BreakerOptions(failure_threshold=3, recovery_s=60))
    look = FakeTool("look", options=options)
    look.body = lambda arguments, context: body(len(look.contexts))
    return look


def look_for(number: int) -> Reply:
    """Return a call with its own arguments, because a repeated call would be stopped."""
    return calls("look", arguments={"n": number})


async def minute(environment: WorkflowEnvironment, handle: WorkflowHandle[Any, Any], hold: Hold) -> None:
    """Let a minute pass in a pause, during a model call."""
    await hold.reached()
    await handle.signal("pause")
    hold.go.set()
    await wait_until_paused(handle)
    await environment.sleep(timedelta(seconds=61))
    await handle.signal("resume")


def circuits(ran: Ran) -> list[str]:
    return [event for event in ran.events if event.startswith("Circuit")]


@pytest.mark.parametrize("chained", CHAINED)
async def test_a_circuit_closes_again_after_its_minute(environment: WorkflowEnvironment, chained: bool) -> None:
    """Three failures open it, and the model reads that at once. A minute later one trial succeeds and closes it."""

    def down_at_first(number: int) -> str:
        if number <= 3:
            raise ToolError("down", retryable=True)
        return "up again"

    hold, look = Hold(), guarded(down_at_first)
    steps: list[Step] = [*map(look_for, range(4)), hold.step(look_for(9)), look_for(10), answers()]
    setup = EACH_ITERATION if chained else WORKER_FACTS
    async with a_long_loop(environment, steps, look, setup=setup) as loop:
        handle = await loop.start()
        await minute(environment, handle, hold)
        ran = await loop.ended(handle)
    assert tool_results_in(loop, 4)[3].startswith("[Circuit open] look")
    assert tool_results_in(loop, 6)[4:] == ["up again", "up again"]
    assert circuits(ran) == ["CircuitOpened", "CircuitClosed"]
    assert (len(look.contexts), len(ran.histories)) == (5, 7 if chained else 1)


@pytest.mark.parametrize("chained", CHAINED)
async def test_a_circuit_whose_trial_fails_stays_open_for_another_minute(
    environment: WorkflowEnvironment, chained: bool
) -> None:
    """Three calls fail, then one is rejected.

    The trial after a minute fails, and the second trial closes the circuit.
    """

    def down_for_long(number: int) -> str:
        if number <= 4:
            raise ToolError("down", retryable=True)
        return "up again"

    first, second, look = Hold(), Hold(), guarded(down_for_long)
    steps: list[Step] = [
        *map(look_for, range(4)),
        first.step(look_for(10)),
        look_for(11),
        second.step(look_for(12)),
        answers(),
    ]
    setup = EACH_ITERATION if chained else WORKER_FACTS
    async with a_long_loop(environment, steps, look, setup=setup) as loop:
        handle = await loop.start()
        await minute(environment, handle, first)
        await minute(environment, handle, second)
        ran = await loop.ended(handle)
    results = tool_results_in(loop, 7)
    assert [result.startswith("[Circuit open] look is left alone") for result in results[3:]] == [
        True,
        False,
        True,
        False,
    ]
    assert (results[6], len(look.contexts)) == ("up again", 5)
    assert circuits(ran) == ["CircuitOpened", "CircuitOpened", "CircuitClosed"]
