"""Status queries change nothing: after any number of them a run verifies, and any worker can continue it."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack
from typing import Any

import pytest
from temporalio.client import Client, WorkflowHandle

from orga.client.proof.verify import verify
from orga.testing import FakeTool, answers, calls
from orga.workflows.types.tool_calls.tools import ToolOptions
from tests.replay.record import SCENARIOS
from tests.support.runs.approvals import Asks, approval_argument, wait_for_held_calls
from tests.support.runs.loop import Loop, a_loop
from tests.support.runs.queried import being_looked_at
from tests.support.runs.questions import send_update

RUNS = 4
"""The queries are sent one after the other.

Without the patient runner some would fail to verify, depending on the machine. See
tests/unit/worker/test_patient_runner.py.
"""


@pytest.fixture
async def under_watch(client: Client, monkeypatch: pytest.MonkeyPatch) -> AsyncGenerator[None]:
    """Query every run that is started until the test ends."""
    async with AsyncExitStack() as lookers:
        start = Loop.start

        async def started(loop: Loop, *given: Any, **config: Any) -> WorkflowHandle[Any, Any]:
            handle = await start(loop, *given, **config)
            await lookers.enter_async_context(being_looked_at(client, handle.id))
            return handle

        monkeypatch.setattr(Loop, "start", started)
        yield


async def assert_verifies(client: Client, workflow_id: str) -> None:
    """Assert that all checks of `orga verify` pass, including those of its clocks."""
    found = (await verify(client, workflow_id)).checks
    assert [(check.name, check.detail) for check in found if not check.ok] == []


@pytest.mark.parametrize("name", SCENARIOS)
async def test_any_queried_run_verifies(client: Client, under_watch: None, name: str) -> None:
    ran = await SCENARIOS[name](client)
    await assert_verifies(client, ran.handle.id)


async def approved_run(loop: Loop) -> str:
    handle = await loop.start()
    async with being_looked_at(loop.client, handle.id):
        for number in (1, 1, 2):
            for question in await wait_for_held_calls(handle, number):
                await send_update(handle, "approve", approval_argument(question))
        await handle.result()
    return handle.id


async def test_queried_runs_that_wait_for_people_verify(client: Client) -> None:
    """The gate judges again after each approval. There the clocks of a run and of its replay once differed."""
    for _ in range(RUNS):
        steps = [calls("look"), calls("pay"), calls("pay"), calls("pay", "pay"), answers()]
        pay = FakeTool("pay", effect="irreversible")
        async with a_loop(client, steps, pay, FakeTool("look"), engine=Asks()) as loop:
            await assert_verifies(client, await approved_run(loop))
        assert len(pay.contexts) == 4


async def test_queried_runs_with_local_tools_and_signals_verify(client: Client) -> None:
    """A replay must handle signals in the same order: guidance, a pause, an abort."""
    for number in range(RUNS):
        look = FakeTool("look", lambda arguments, context: asyncio.sleep(0.02), options=ToolOptions(execution="local"))
        steps = [*[calls("look", "look")] * 12, answers()]
        async with a_loop(client, steps, look) as loop:
            handle = await loop.start()
            async with being_looked_at(client, handle.id):
                for _ in range(6):
                    await handle.signal("steer", "look closer")
                    await handle.signal("pause")
                    await asyncio.sleep(0.01 * number)
                    await handle.signal("resume")
                    await asyncio.sleep(0.03)
                await handle.signal("abort", "enough")
                await handle.result()
            await assert_verifies(client, handle.id)


async def test_queried_runs_that_no_worker_caches_continue(client: Client) -> None:
    """Each workflow task and each query may have to replay the run."""
    steps = [*[calls("look", "look")] * 20, answers()]
    async with a_loop(client, steps, FakeTool("look"), max_cached_workflows=2) as loop:
        await asyncio.gather(*[_looked_at_a_little(loop) for _ in range(5)])


async def _looked_at_a_little(loop: Loop) -> None:
    handle = await loop.start()
    async with being_looked_at(loop.client, handle.id, lookers=1):
        await handle.result()
    await assert_verifies(loop.client, handle.id)
