"""The time for compensations after the end of the run, in workflow time, on the time-skipping server."""

from collections.abc import AsyncGenerator
from datetime import timedelta

import pytest
from temporalio.testing import WorkflowEnvironment

from orga.testing import answers
from orga.workflows.types.agents import AgentConfig
from orga.workflows.types.tool_calls.tools import ToolOptions
from tests.support.hold import wait_until
from tests.support.parts.time_skipping import time_skipping
from tests.support.runs.loop import Ran, a_loop
from tests.support.runs.questions import send_update, tool_results_in
from tests.support.runs.sagas import Ledger, an_agency, book, fails, pay, saga


@pytest.fixture(scope="module")
async def environment() -> AsyncGenerator[WorkflowEnvironment]:
    async with time_skipping() as environment:
        yield environment


def waits(retry_s: float) -> ToolOptions:
    """Return the options of a tool with a second attempt after this delay."""
    return ToolOptions(max_attempts=2, initial_interval_s=retry_s, max_interval_s=retry_s)


async def out_of_time(environment: WorkflowEnvironment, ledger: Ledger, retry_s: float) -> tuple[Ran, str]:
    """Return a run that times out while a compensation waits for its next attempt, and the result of its saga."""
    tools = [ledger.tool("book"), ledger.tool("cancel", options=waits(retry_s)), ledger.tool("pay", "irreversible")]
    agent = AgentConfig(tools=("book", "cancel", "pay", "saga"))
    steps = [saga(book("hotel"), book("car"), pay())]
    async with a_loop(environment.client, steps, *tools, agents={"default": agent}) as loop:
        loop.execution_timeout = timedelta(hours=2)
        ran = await loop.run(timeout_s=30)
        shown = await ran.handle.query("conversation")
    return ran, shown[-1]["text"]


async def test_compensations_may_take_a_minute_longer_than_the_run(environment: WorkflowEnvironment) -> None:
    tries: list[int] = []

    def flaky() -> str:
        tries.append(1)
        return "done" if len(tries) > 1 else fails("down", retryable=True)()

    ledger = Ledger({"pay all": fails(), "cancel car": flaky})
    ran, text = await out_of_time(environment, ledger, 70)
    assert (ledger.done, len(tries)) == (["book hotel", "book car", "cancel hotel"], 2)
    assert "what was done is taken back" in text
    assert ran.result.termination.reason == "timeout"
    assert 70 <= ran.result.duration_s < 90


async def test_more_time_for_the_run_is_more_time_for_compensations(environment: WorkflowEnvironment) -> None:
    """The time is up after 30 s. The next attempt comes a minute later, long after the run was given more time."""
    tries: list[int] = []

    def flaky() -> str:
        tries.append(1)
        return "done" if len(tries) > 1 else fails("down", retryable=True)()

    async def has_tried() -> bool:
        return bool(tries)

    ledger = Ledger({"pay all": fails(), "cancel hotel": flaky})
    tools = [ledger.tool("book"), ledger.tool("cancel", options=waits(120)), ledger.tool("pay", "irreversible")]
    async with an_agency(environment.client, [saga(book("hotel"), pay()), answers()], *tools) as loop:
        loop.execution_timeout = timedelta(hours=2)
        handle = await loop.start(timeout_s=30)
        await wait_until(has_tried)
        await environment.sleep(45)
        await send_update(handle, "extend_budget", {"timeout_s": 1_000})
        ran = await loop.ended(handle)
    assert ledger.done == ["book hotel"]
    assert (len(tries), ran.result.termination.reason) == (2, "completed")
    assert "what was done is taken back" in tool_results_in(loop)[0]


async def test_a_compensation_over_its_time_is_given_up_and_reported(environment: WorkflowEnvironment) -> None:
    ledger = Ledger({"pay all": fails(), "cancel car": fails("down", retryable=True)})
    ran, text = await out_of_time(environment, ledger, 1_000)
    assert ledger.done == ["book hotel", "book car"]
    assert "NOT taken back: step 2, 1; see to it" in text
    assert "compensation of step 2, cancel: cancelled" in text
    assert "compensation of step 1, cancel: not_run" in text
    assert ran.result.termination.reason == "timeout"
    assert 90 <= ran.result.duration_s < 100
