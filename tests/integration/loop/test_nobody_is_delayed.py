"""While a worker handles the worst known inputs, another run on it takes its next step within a second."""

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Iterable
from contextlib import asynccontextmanager, suppress
from datetime import timedelta
from typing import Any

from temporalio.client import Client, WorkflowFailureError

from orga.activities.ports import ModelRequest
from orga.activities.watchdog import Watchdog
from orga.client.testing.script import Step
from orga.testing import FakeTool, ScriptedModel, answers, calls
from orga.workflows.types.messages import Reply
from orga.workflows.types.tool_calls.tools import ToolOptions
from tests.integration.tools.test_hostile_replies import REPLIES
from tests.support.hold import wait_until
from tests.support.programs.standstill import LIMIT_S, longest_pause
from tests.support.runs.loop import Loop, a_loop
from tests.support.values.corpora import corpus
from tests.support.values.odd_payloads import odd, raw
from tests.support.values.slow_inputs import HELD, TEXTS

WITNESS = "witness"
LARGE = ToolOptions(max_result_bytes=500_000, initial_interval_s=0.01)


class Both:
    """The model of two runs: the witness calls its tool all the time, the other follows its script."""

    def __init__(self) -> None:
        self.script = ScriptedModel([], repeats=True)
        self.beats: list[float] = []
        self.is_over = False

    async def complete(self, request: ModelRequest, on_text: Callable[[str], None]) -> Reply:
        """Return the next reply of the witness or the script."""
        if request.messages[0].text != WITNESS:
            return await self.script.complete(request, on_text)
        self.beats.append(time.process_time())
        return answers("over") if self.is_over else calls("tick")

    @property
    def longest_s(self) -> float:
        """Return the longest time in seconds that this process worked between two steps of the witness."""
        return max(later - earlier for earlier, later in zip(self.beats, self.beats[1:], strict=False))


@asynccontextmanager
async def a_witness(client: Client, *tools: FakeTool) -> AsyncGenerator[tuple[Loop, Both]]:
    """Run a worker with the witness, and assert at the end that its longest step was short."""
    both = Both()

    async def has_begun() -> bool:
        return len(both.beats) > 3

    async with a_loop(client, both, FakeTool("tick"), *tools) as loop:
        loop.execution_timeout = timedelta(minutes=10)
        endless = {"max_iterations": 100_000, "max_total_tokens": 10**9, "timeout_s": 1_000}
        witness = await loop.start(WITNESS, **endless, step_iteration={"enabled": False})
        await wait_until(has_begun)
        async with Watchdog(held_s=LIMIT_S).watch() as watchdog:
            yield loop, both
        both.is_over = True
        assert (await witness.result())["output"] == "over"
    assert both.longest_s < LIMIT_S, watchdog.longest


async def play(client: Client, scripts: Iterable[list[Step]], *tools: FakeTool, **task: Any) -> None:
    """Run one script after the other, next to the witness."""
    async with a_witness(client, *tools) as (loop, both):

        async def all_of_them() -> None:
            for script in scripts:
                both.script = ScriptedModel(script, repeats=True)
                handle = await loop.start({"task": "do it", **task}, timeout_s=30, context_token_budget=1_000_000)
                await handle.result()

        assert await longest_pause(all_of_them()) < LIMIT_S


async def test_no_model_reply_delays_another_run(client: Client) -> None:
    def script(step: Any) -> list[Step]:
        says: Step = step if isinstance(step, (Exception, Reply)) else (lambda _: step)
        return [says, says, *[answers("survived")] * 5]

    large = [step for name, step in REPLIES.items() if any(word in name for word in ("MB", "1,000", "deep", "digits"))]
    await play(client, [script(step) for step in large], FakeTool("look"))


async def test_no_tool_result_delays_another_run(client: Client) -> None:
    texts = [
        "x" * 10_000_000, "\x1b" * 1_000_000, "😀" * 1_000_000,
        *(text * (500_000 // len(text)) for text in TEXTS),
        *(case["text"] * (100_000 // len(case["text"]) + 1) for case in corpus("injections")["cases"]),
    ]  # fmt: skip
    left = iter(texts)
    tool = FakeTool("look", lambda arguments, context: next(left), options=LARGE)
    batch: list[Step] = [calls("look"), calls("look", "look", "look"), answers("survived")]
    await play(client, [batch] * (len(texts) // 4), tool)


async def test_no_answer_schema_delays_another_run(client: Client) -> None:
    async with a_witness(client) as (loop, both):

        async def all_of_them() -> None:
            for schema in (schema for name, (schema, _) in HELD.items() if name != "deep"):  # no client can write it
                both.script = ScriptedModel([answers('{"x": 3}')] * 5, repeats=True)
                handle = await loop.start({"task": "do it", "output_schema": schema})
                with suppress(WorkflowFailureError):  # the run refuses the schema
                    await handle.result()

        assert await longest_pause(all_of_them()) < LIMIT_S


async def test_no_signal_or_update_delays_another_run(client: Client) -> None:
    async with a_witness(client) as (loop, both):

        async def all_of_them() -> None:
            for data in odd(1_800_000).values():
                both.script = ScriptedModel([answers("done")], repeats=True)
                handle = await loop.start()
                await asyncio.gather(*(handle.signal("steer", raw(data)) for _ in range(5)))
                await handle.result()

        assert await longest_pause(all_of_them()) < LIMIT_S
