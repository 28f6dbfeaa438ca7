"""(l) A goal with slow and independent steps: in parallel, compared with one after the other."""

import re
import uuid
from collections.abc import Callable
from statistics import median
from time import perf_counter

from temporalio.client import Client

from bench.figures import Figure
from bench.sides.ours import ReadFile, our_worker
from bench.sides.rig import Rig
from bench.sides.script import TOOL
from orga.activities.ports import ModelProvider, ModelRequest
from orga.testing import answers
from orga.workflows.types.goals.requests import goal_prompt_in
from orga.workflows.types.messages import Reply
from tests.support.model.goals import a_step, evaluation_reply, requesting_message, says

QUEUE = "goals"
STEPS, PARALLEL = 8, 4
STEP_S = 0.5
MAX_RATIO = 0.35
"""The steps alone would come to 1 / `PARALLEL`. Plan and answer add the same time on both sides."""


class Planner:
    """Plans independent steps and scores all of them as good, at once."""

    async def complete(self, request: ModelRequest, on_text: Callable[[str], None]) -> Reply:
        """Be a provider."""
        text = requesting_message(request)
        match goal_prompt_in(text):
            case "goal_plan":
                return says(steps=[a_step(f"s{number}", TOOL, path=f"{number}.md") for number in range(STEPS)])
            case "goal_evaluate":
                return evaluation_reply(*re.findall(r"^- (\S+): ", text, re.MULTILINE))
            case _:
                return answers("All of it is read.")

    def resolve(self, name: str) -> tuple[ModelProvider, str]:
        """Be the only provider."""
        return self, name


async def measure(rig: Rig, pairs: int) -> list[Figure]:
    """Return the figures of goals that differ only in `max_parallel_steps`, in turn."""
    client = rig.ours.client
    side_by_side: list[float] = []
    in_a_row: list[float] = []
    async with our_worker(client, QUEUE, Planner(), tool=ReadFile(STEP_S)):
        await _seconds(client, STEPS)
        for _ in range(pairs):
            side_by_side.append(await _seconds(client, PARALLEL))
            in_a_row.append(await _seconds(client, 1))
    ratio = median(a / b for a, b in zip(side_by_side, in_a_row, strict=True))
    what = f"goal: {STEPS} slow steps, {PARALLEL} at once, compared with 1"
    return [Figure("l", what, "s", median(side_by_side), median(in_a_row), ratio, MAX_RATIO)]


async def _seconds(client: Client, parallel: int) -> float:
    """Return the seconds from the start of a goal to its result."""
    started = perf_counter()
    result = await client.execute_workflow(
        "GoalWorkflow",
        {"goal": "Read all of it.", "config": {"max_parallel_steps": parallel}},
        id=f"goal-{uuid.uuid4()}",
        task_queue=QUEUE,
        result_type=dict,
    )
    taken = perf_counter() - started
    assert [step["status"] for step in result["steps"]] == ["done"] * STEPS, result["termination"]
    return taken
