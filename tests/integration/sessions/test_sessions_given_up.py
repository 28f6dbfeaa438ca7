"""Sessions that end outside a turn: on bad input, while they are prepared, and while learnings are stored."""

import asyncio
from collections.abc import AsyncGenerator
from pathlib import Path
from time import monotonic
from typing import Any
from uuid import uuid4

import pytest
from temporalio.client import Client, WorkflowFailureError
from temporalio.exceptions import ApplicationError

from orga.activities.adapters.knowledge.sqlite.sqlite_store import SqliteStore
from orga.testing import ScriptedModel, answers
from orga.workflows.phases.control.run import CANCEL_GRACE_S
from orga.workflows.phases.knowledge import LEARNING_TIMEOUT_S
from tests.support.hold import wait_until
from tests.support.runs.knowing import ON, HeldStore
from tests.support.runs.loop import a_loop
from tests.support.runs.sessions import begin, turn_summary, wait_for_session

TOO_MANY = ["t" * 195] * 400
"""Each name is valid, but together they exceed the input limit of an agent."""


@pytest.mark.parametrize(
    ("workflow", "given"),
    [("SessionWorkflow", {"tools": TOO_MANY}), ("GoalWorkflow", {"goal": "find out", "skills": TOO_MANY})],
)
async def test_input_that_only_the_agent_refuses_fails_the_run(
    client: Client, workflow: str, given: dict[str, Any]
) -> None:
    """Any other error raised there would be retried for ever."""
    async with a_loop(client, [answers()]) as loop:
        handle = await client.start_workflow(workflow, given, id=f"big-{uuid4()}", task_queue=loop.task_queue)
        with pytest.raises(WorkflowFailureError) as failed:
            await handle.result()
    cause = failed.value.cause
    assert isinstance(cause, ApplicationError)
    assert (cause.type, "over the limit of 50000" in cause.message) == ("InvalidInput", True)


async def test_a_message_to_a_session_aborted_during_preparation_is_answered(client: Client) -> None:
    tries: list[str] = []

    def out_of_order(model: str) -> None:
        tries.append(model)
        raise RuntimeError("the list of models cannot be read")

    async with a_loop(client, [answers()], check_model=out_of_order) as loop:
        session = await begin(loop)

        async def is_tried() -> bool:
            return bool(tries)

        await wait_until(is_tried)
        assert await session.post("hello") == 1
        await session.abort("enough")
        turn = await session.result_of(1)
        last = await wait_for_session(session)
    assert turn_summary(turn) == (1, "", "aborted")
    assert turn.termination.detail == "the session ended before this turn began"
    assert last.result.termination.reason == "aborted"


@pytest.fixture
async def held(tmp_path: Path) -> AsyncGenerator[SqliteStore]:
    store = HeldStore(tmp_path / "knowledge.db")
    yield store
    await store.close()


async def test_an_abort_does_not_wait_for_a_hanging_store(client: Client, held: HeldStore) -> None:
    async with a_loop(client, ScriptedModel([answers("Green.")]), knowledge=held) as loop:
        session = await begin(loop, **ON)
        await session.send("Which colour?")
        await held.hold.reached()
        began = monotonic()
        await session.abort("enough")
        async with asyncio.timeout(LEARNING_TIMEOUT_S):
            last = await wait_for_session(session)
    assert last.result.termination.reason == "aborted"
    assert monotonic() - began < LEARNING_TIMEOUT_S / 2 > 2 * CANCEL_GRACE_S
