"""Runs of the bare loop, whose histories are recorded."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from temporalio.client import Client

from orga.activities.ports import ModelProvider, Tool
from orga.client.testing.script import Step
from orga.testing import FakeTool, answers, calls
from orga.workflows.types.messages import Reply
from tests.support.hold import Hold
from tests.support.runs.loop import WORKER_FACTS, Deny, Loop, Ran, a_loop

FORBIDDEN = "delete"


@asynccontextmanager
async def a_stage(
    client: Client, steps: Sequence[Step] | ModelProvider, *tools: Tool, **options: Any
) -> AsyncGenerator[Loop]:
    """Run a worker whose task queue is the same in every recording."""
    options = {"engine": Deny(FORBIDDEN), **options}
    async with a_loop(client, steps, *tools, task_queue="recorded", **options) as loop:
        yield loop


def look() -> FakeTool:
    return FakeTool("look", lambda arguments, context: "seen " * 20)


async def answer(client: Client) -> Ran:
    async with a_stage(client, [answers("42")]) as loop:
        return await loop.run()


async def tools_and_a_denial(client: Client) -> Ran:
    steps = [calls("look", FORBIDDEN, reply_text="I look."), calls("look"), answers("done")]
    async with a_stage(client, steps, look(), FakeTool(FORBIDDEN)) as loop:
        return await loop.run()


async def steered_and_paused(client: Client) -> Ran:
    async with a_stage(client, [calls("look"), answers("done")], look()) as loop:
        handle = await loop.start()
        await handle.signal("steer", "look closer")
        await handle.signal("pause")
        await handle.signal("add_context", "it is Monday")
        await handle.signal("resume")
        return await loop.ended(handle)


async def aborted_in_a_tool(client: Client) -> Ran:
    hold = Hold()
    wait = FakeTool("wait", lambda arguments, context: hold.then("never"), effect="irreversible")
    async with a_stage(client, [calls("look", "wait")], look(), wait) as loop:
        handle = await loop.start()
        await hold.reached()
        await handle.signal("abort", "enough")
        return await loop.ended(handle)


async def repaired(client: Client) -> Ran:
    refusal, half = Reply.of("no", finish="refusal"), Reply.of("half ", finish="length")
    async with a_stage(client, [refusal, Reply.of(""), calls("look"), half, answers("whole")], look()) as loop:
        return await loop.run()


async def an_error_after_repairs(client: Client) -> Ran:
    async with a_stage(client, [Reply.of("")]) as loop:
        return await loop.run()


async def iteration_limit(client: Client) -> Ran:
    async with a_stage(client, [calls("look")], look()) as loop:
        return await loop.run(max_iterations=3)


async def rolled_over(client: Client) -> Ran:
    facts = WORKER_FACTS.model_copy(update={"roll_over_events": 40})
    async with a_stage(client, [*[calls("look")] * 6, answers("done")], look(), setup=facts) as loop:
        return await loop.run()
