"""Malicious starters and senders of signals: forged states, reused ids, floods, and growing payloads."""

import asyncio
import uuid
from datetime import UTC, datetime, timedelta

from temporalio.client import Client

from orga.client.journal.reading import read_journal
from orga.testing import FakeTool, ScriptedModel, answers, calls
from orga.workflows.decisions.begin import initial_state
from orga.workflows.types.input import AgentInput
from tests.support.runs.loop import WORKER_FACTS, Loop, a_loop, a_worker

LONG = timedelta(seconds=60)


async def test_a_forged_state_is_not_taken_for_a_carried_one(client: Client) -> None:
    """A cron run follows another with the starter's arguments. They must not smuggle in tools that no agent lists."""
    danger = FakeTool("danger", effect="irreversible")
    provider = ScriptedModel([answers("first"), calls("danger"), answers("x")], repeats=True)
    setup = WORKER_FACTS.model_copy(update={"agent": "default", "model": "p:m", "tools": (danger.spec,)})
    state = initial_state(AgentInput(task="t"), "o", datetime.now(UTC)).model_copy(update={"setup": setup})
    async with a_loop(client, provider) as loop:
        handle = await client.start_workflow(
            "AgentWorkflow",
            args=[{"task": "t"}, state.model_dump(mode="json")],
            id=f"cron-{uuid.uuid4()}",
            task_queue=loop.task_queue,
            cron_schedule="@every 1s",
            execution_timeout=LONG,
        )
        first = (await handle.describe()).run_id
        second = await _next_run(client, handle.id, first)
        third = await _next_run(client, handle.id, second)
        await client.get_workflow_handle(handle.id).terminate()

    assert len({first, second, third}) == 3
    assert danger.contexts == []


async def _next_run(client: Client, workflow_id: str, run_id: str) -> str:
    async with asyncio.timeout(30):
        while (current := (await client.get_workflow_handle(workflow_id).describe()).run_id) == run_id:
            await asyncio.sleep(0.1)
    return current


async def test_the_journal_of_a_cron_run_covers_only_one_run(client: Client) -> None:
    async with a_loop(client, [answers("x")]) as loop:
        handle = await client.start_workflow(
            "AgentWorkflow",
            {"task": "t"},
            id=f"cron-{uuid.uuid4()}",
            task_queue=loop.task_queue,
            cron_schedule="@every 1s",
            execution_timeout=LONG,
        )
        await _next_run(client, handle.id, (await handle.describe()).run_id)
        events = [entry.event async for entry in read_journal(client, handle.id)]
        await client.get_workflow_handle(handle.id).terminate()

    assert events.count("Started") <= 1
    assert "Terminated" not in events[:-1]


async def test_a_run_with_a_reused_id_has_its_own_setup(client: Client) -> None:
    provider = ScriptedModel([answers("a")], repeats=True)
    workflow_id = f"nightly-{uuid.uuid4()}"
    async with a_loop(client, provider, FakeTool("danger"), FakeTool("look")) as loop:
        for given in ({"instructions": "ONE"}, {"instructions": "TWO", "model": "p:two", "tools": ["look"]}):
            await client.execute_workflow(
                "AgentWorkflow", {"task": "t", **given}, id=workflow_id, task_queue=loop.task_queue
            )

    second = provider.seen[1]
    assert (second.model, second.system, [tool.name for tool in second.tools]) == ("p:two", ("TWO",), ["look"])


async def test_thousands_of_signals_before_the_first_task(client: Client) -> None:
    """They arrive in one task, which the SDK gives up after two seconds.

    Twice as many would exceed that on a slow machine.
    """
    loop = Loop(client, f"test-{uuid.uuid4()}", ScriptedModel([answers("x")], repeats=True), timedelta(seconds=240))
    handle = await loop.start(context_token_budget=10**6, max_total_tokens=10**9)
    for _ in range(10):
        await asyncio.gather(*[handle.signal("steer", "x" * 250) for _ in range(200)])
    async with a_worker(loop):
        result = await handle.result()

    assert result["termination"]["reason"] == "completed"


async def test_signals_of_control_characters_do_not_exceed_a_payload(client: Client) -> None:
    """A control character takes six bytes of JSON, so ten signals would exceed a payload."""
    loop = Loop(client, f"test-{uuid.uuid4()}", ScriptedModel([answers("x")], repeats=True))
    handle = await loop.start()
    for _ in range(10):
        await handle.signal("steer", "\x01" * 50_000)
    async with a_worker(loop):
        ran = await loop.ended(handle)

    assert ran.result.termination.reason == "completed"


async def test_answers_of_quotes_do_not_exceed_the_result(client: Client) -> None:
    cut = answers('"' * 499_000, finish="length")
    async with a_loop(client, [cut, cut, cut]) as loop:
        ran = await loop.run(context_token_budget=10**7, max_total_tokens=10**9)

    assert ran.result.termination.reason == "completed"
    assert "[cut: " in ran.result.output
