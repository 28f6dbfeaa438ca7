"""The history of a goal of many rounds grows in proportion to its rounds, and little beyond its tool results."""

from typing import Any, NamedTuple

from temporalio.client import Client

from orga.activities.ports import ToolContext
from orga.testing import FakeTool
from tests.support.model.researcher import READ, SEARCH, STEPS_A_PLAN, Researcher
from tests.support.runs.goals import start, wait_for_goal
from tests.support.runs.loop import a_loop, histories_of

RESULT_BYTES = 3_000
MAX_BYTES = 400_000
MAX_GROWTH = 3.5
"""Ratio of 15 rounds to 5: three times as much, plus a little for the list of steps that each decision reads."""


class Grown(NamedTuple):
    """The histories of a goal that has ended."""

    total: int
    """Bytes as the server counts them, over all segments."""
    result_bytes: int
    """Bytes of tool results in these histories."""

    @property
    def added(self) -> int:
        """Bytes that the loop adds: events, calls, replies, prompts, the journal and the result."""
        return self.total - self.result_bytes


async def test_a_goal_of_15_rounds_adds_less_than_400_kb_to_its_tool_results(client: Client) -> None:
    """Use four steps a round with 3 kB each, a new plan every second round, and 300 bytes of text on every step.

    The measured size is the history size that the server reports and limits, less the tool results.
    """
    short, long = await _pursued(client, 5), await _pursued(client, 15)
    assert long.added < MAX_BYTES
    assert long.added < short.added * MAX_GROWTH
    assert long.total < short.total * MAX_GROWTH


async def test_a_goal_of_15_rounds_of_two_steps_stays_below_400_kb(client: Client) -> None:
    """Tool results count here, too."""
    pursued = await _pursued(client, 15, side_by_side=2)
    assert pursued.total < MAX_BYTES


async def _pursued(client: Client, rounds: int, side_by_side: int = 4) -> Grown:
    def search(arguments: dict[str, Any], _: ToolContext) -> str:
        return f"{arguments}: ".ljust(RESULT_BYTES, "x")

    tools = FakeTool(SEARCH, search), FakeTool(READ, search)
    async with a_loop(client, Researcher(), *tools) as loop:
        goal = "Tell what limits there are, and where each is set."
        handle = await start(loop, goal, max_iterations=rounds, max_parallel_steps=side_by_side)
        pursued = await wait_for_goal(handle, client)
        chain = [history.run_id for history in await histories_of(client, handle.id)]
    results = sum(len(tool.contexts) for tool in tools)
    assert (pursued.reason, pursued.result.rounds) == ("max_iterations", rounds)
    planned = pursued.events.count("PlanAdjusted")
    assert (results, planned) == (side_by_side * rounds, rounds * side_by_side // STEPS_A_PLAN)
    return Grown(sum([await _bytes(client, handle.id, run) for run in chain]), results * RESULT_BYTES)


async def _bytes(client: Client, workflow_id: str, run_id: str) -> int:
    described = await client.get_workflow_handle(workflow_id, run_id=run_id).describe()
    return described.raw_description.workflow_execution_info.history_size_bytes
