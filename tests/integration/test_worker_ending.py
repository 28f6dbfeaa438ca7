"""A worker that is told to stop ends, also where the SDK's last step never would."""

import asyncio

import pytest
from temporalio.bridge.worker import Worker as Bridge
from temporalio.client import Client

from orga.client.workers import ending
from orga.testing import ScriptedModel, answers
from tests.support.runs.loop import Loop, a_worker


async def never_finalize(bridge: Bridge) -> None:
    await asyncio.Event().wait()


async def test_a_worker_whose_last_step_never_ends_is_left(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    loop = Loop(client, "test-ending", ScriptedModel([answers("all is well")]))
    monkeypatch.setattr(ending, "LAST_S", 0.2)
    with monkeypatch.context() as patched:
        patched.setattr(Bridge, "finalize_shutdown", never_finalize)
        worker = a_worker(loop)

    async with asyncio.timeout(60):
        async with worker:
            assert (await loop.run()).result.output == "all is well"
            monkeypatch.setattr(Bridge, "finalize_shutdown", never_finalize)  # not of the replay in that
    assert worker.is_shutdown
