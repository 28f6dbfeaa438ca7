"""Laws of the loop: random runs on a real server are replayed and checked from their journals."""

import asyncio
from typing import Any

import pytest
from hypothesis import given
from temporalio.client import Client, WorkflowHandle

from orga.testing import FakeTool, answers, calls
from tests.support.runs.loop import WORKER_FACTS, a_loop
from tests.support.runs.quick import quick, some
from tests.support.scenarios.laws import LAWS
from tests.support.scenarios.played import Played
from tests.support.scenarios.scenario import Scenario, any_run, busy_people, failing_tools, short_of_time, tight_budgets
from tests.support.scenarios.stage import play_scenario

__all__ = ["quick"]


def hold(run: Played) -> None:
    for law in LAWS:
        law(run)


@pytest.mark.timeout(1_200)
@some(40)
@given(scenario=any_run)
async def test_the_laws_hold_for_any_run(quick: Client, scenario: Scenario) -> None:
    hold(await play_scenario(quick, scenario))


@pytest.mark.timeout(1_200)
@some(30)
@given(scenario=failing_tools)
async def test_the_laws_hold_while_tools_fail(quick: Client, scenario: Scenario) -> None:
    hold(await play_scenario(quick, scenario))


@pytest.mark.timeout(1_200)
@some(30)
@given(scenario=tight_budgets)
async def test_the_laws_hold_at_every_limit(quick: Client, scenario: Scenario) -> None:
    hold(await play_scenario(quick, scenario))


@pytest.mark.timeout(1_200)
@some(15)
@given(scenario=short_of_time)
async def test_the_laws_hold_when_time_runs_out(quick: Client, scenario: Scenario) -> None:
    hold(await play_scenario(quick, scenario))


@pytest.mark.timeout(1_200)
@some(30)
@given(scenario=busy_people)
async def test_the_laws_hold_whatever_people_send(quick: Client, scenario: Scenario) -> None:
    hold(await play_scenario(quick, scenario))


@pytest.mark.timeout(1_200)
@some(15)
@given(scenario=any_run)
async def test_the_laws_hold_for_any_run_under_constant_queries(quick: Client, scenario: Scenario) -> None:
    hold(await play_scenario(quick, scenario, is_looked_at=True))


async def test_a_run_under_constant_queries_replays(quick: Client) -> None:
    """A query splits a workflow task at the end of a local activity, here at each gate."""
    facts = WORKER_FACTS.model_copy(update={"roll_over_events": 20})
    invalid, valid = calls("look", arguments={"n": "no number"}), calls("look", arguments={"n": 1})
    look = FakeTool("look", parameters={"type": "object", "properties": {"n": {"type": "integer"}}})
    async with a_loop(quick, [*[invalid, invalid, valid] * 20, answers()], look, setup=facts) as loop:
        handle = await loop.start(max_iterations=100)
        ended = asyncio.create_task(handle.result())
        await asyncio.gather(*[_looked_at(handle, ended) for _ in range(6)])
        ran = await loop.ended(handle)
    assert (ran.result.termination.reason, ran.result.tool_calls.invalid) == ("completed", 40)


async def _looked_at(handle: WorkflowHandle[Any, Any], ended: asyncio.Task[Any]) -> None:
    while not ended.done():
        await handle.query("status")
