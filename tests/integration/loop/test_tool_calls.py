"""Tools run in parallel within their limit, and each call is answered once, in call order, however it ends."""

import asyncio
from datetime import timedelta
from typing import Any

import pytest
from temporalio.client import Client

from orga.activities.ports import ToolContext, ToolError
from orga.testing import FakeTool, ScriptedModel, answers, calls
from orga.workflows.types.messages import Reply, ToolCall
from orga.workflows.types.tool_calls.tools import Effect, ToolOptions
from tests.support.hold import Hold
from tests.support.runs.loop import a_loop


async def test_results_are_in_call_order_whichever_tool_ends_first(client: Client) -> None:
    ended: list[str] = []
    last = asyncio.Event()

    async def waits(arguments: dict[str, Any], context: ToolContext) -> str:
        await last.wait()
        ended.append(context.call_id)
        return "slow"

    def ends(arguments: dict[str, Any], context: ToolContext) -> str:
        ended.append(context.call_id)
        last.set()
        return "fast"

    provider = ScriptedModel([calls("slow", "slow", "fast"), answers()], repeats=True)
    async with a_loop(client, provider, FakeTool("slow", waits), FakeTool("fast", ends)) as loop:
        ran = await loop.run()

    assert ended[0] == "fast_2"
    results = provider.seen[1].messages[2:]
    assert [(m.call_id, m.text) for m in results] == [("slow_0", "slow"), ("slow_1", "slow"), ("fast_2", "fast")]
    collected = next(e for e in ran.journal if e.event == "ObservationsCollected")
    assert [o["call_id"] for o in collected.data["outcomes"]] == ["slow_0", "slow_1", "fast_2"]


@pytest.mark.parametrize("limit", [1, 3])
async def test_no_more_tools_run_at_once_than_allowed(client: Client, limit: int) -> None:
    """Exactly as many run as allowed: each waits until the others of its batch are there."""
    running, most = 0, 0

    async def counts(arguments: dict[str, Any], context: ToolContext) -> str:
        nonlocal running, most
        running += 1
        most = max(most, running)
        async with asyncio.timeout(20):
            while most < limit:
                await asyncio.sleep(0.01)
        await asyncio.sleep(0.1)
        running -= 1
        return "ok"

    async with a_loop(client, [calls(*["count"] * 7), answers()], FakeTool("count", counts)) as loop:
        ran = await loop.run(max_concurrent_tools=limit)

    assert (most, ran.result.tool_calls.run) == (limit, 7)


@pytest.mark.parametrize(
    ("effect", "attempts", "runs"),
    [
        pytest.param("read_only", None, 2, id="read only: as often as the run's recovery allows"),
        pytest.param("idempotent", None, 2, id="idempotent: likewise"),
        pytest.param("irreversible", None, 1, id="irreversible: once"),
        pytest.param("irreversible", 3, 1, id="irreversible: once, whatever its options allow"),
        pytest.param("read_only", 3, 3, id="its options override the run's recovery"),
    ],
)
async def test_a_failing_tool_is_repeated_as_its_effect_allows(
    client: Client, effect: Effect, attempts: int | None, runs: int
) -> None:
    def fails(arguments: dict[str, Any], context: ToolContext) -> str:
        raise OSError("disk on fire")

    options = ToolOptions(max_attempts=attempts, initial_interval_s=0.01)
    tool = FakeTool("burn", fails, effect=effect, options=options)
    provider = ScriptedModel([calls("burn"), answers()], repeats=True)
    async with a_loop(client, provider, tool) as loop:
        ran = await loop.run()

    assert len(tool.contexts) == runs
    assert len({context.idempotency_key for context in tool.contexts}) == 1
    reported = provider.seen[1].messages[-1].text
    assert reported.startswith("[Error] OSError: disk on fire")
    assert ("The outcome is unknown" in reported) == (effect == "irreversible")
    assert ran.result.tool_calls.model_dump() == {"proposed": 1, "run": 1, "denied": 0, "failed": 1}


async def test_a_reported_tool_error_is_final_unless_marked_retryable(client: Client) -> None:
    def fails(arguments: dict[str, Any], context: ToolContext) -> str:
        raise ToolError("no such file; list the folder first", kind="NotFound")

    tool = FakeTool("read", fails)
    provider = ScriptedModel([calls("read"), answers()], repeats=True)
    async with a_loop(client, provider, tool) as loop:
        await loop.run()

    assert len(tool.contexts) == 1
    assert provider.seen[1].messages[-1].text == "[Error] NotFound: no such file; list the folder first"


async def test_a_tool_over_its_time_limit_is_an_error_and_the_loop_continues(client: Client) -> None:
    hold = Hold()
    tool = FakeTool("slow", lambda a, c: hold.then("never"), effect="irreversible", options=ToolOptions(timeout_s=1))
    provider = ScriptedModel([calls("slow"), answers("went on")], repeats=True)
    async with a_loop(client, provider, tool) as loop:
        ran = await loop.run()

    assert ran.result.output == "went on"
    assert provider.seen[1].messages[-1].text == (
        "[Error] TimeLimit: slow took longer than its 1 s. The outcome is unknown: it may have taken effect. "
        "Do not call it again before you have found out that it did not."
    )


async def test_a_tool_on_a_task_queue_without_worker_times_out_with_the_run(client: Client) -> None:
    options = ToolOptions(task_queue="nobody-polls-this", max_attempts=1)
    async with a_loop(client, [calls("far")], FakeTool("far", options=options)) as loop:
        ran = await loop.run(timeout_s=2)

    assert ran.result.termination.reason == "timeout"


async def test_a_tool_can_run_inside_the_workflow_task(client: Client) -> None:
    tool = FakeTool("peek", lambda a, c: "seen", options=ToolOptions(execution="local"))
    provider = ScriptedModel([calls("peek", "peek"), calls("peek"), answers()], repeats=True)
    async with a_loop(client, provider, tool) as loop:
        ran = await loop.run()

    assert [m.text for m in provider.seen[2].messages if m.role == "tool"] == ["seen"] * 3
    scheduled = [e.activity_task_scheduled_event_attributes.activity_type.name for e in ran.history.events]
    assert "peek" not in scheduled


async def test_each_call_has_its_own_idempotency_key(client: Client) -> None:
    tool = FakeTool("look")
    twice_then_once = [calls("look", "look"), calls("look"), answers()]
    async with a_loop(client, twice_then_once * 2, tool) as loop:
        await loop.run()
        await loop.run()

    assert len({context.idempotency_key for context in tool.contexts}) == len(tool.contexts) == 6


async def test_repeated_call_ids_of_a_model_are_made_unique_and_answered(client: Client) -> None:
    same = Reply.of(calls=(ToolCall(call_id="c", name="look"), ToolCall(call_id="c", name="look")), finish="tool_calls")
    provider = ScriptedModel([same, same, answers()], repeats=True)
    async with a_loop(client, provider, FakeTool("look")) as loop:
        await loop.run()

    answered = [m.call_id for m in provider.seen[2].messages if m.role == "tool"]
    asked = [call.call_id for m in provider.seen[2].messages for call in m.calls]
    assert answered == asked == ["c", "c_2", "c_3", "c_4"]


async def test_a_summary_of_wide_characters_stays_within_the_servers_limit(client: Client) -> None:
    async with a_loop(client, [calls("look", arguments={"path": "😀" * 1_000}), answers()], FakeTool("look")) as loop:
        ran = await loop.run()

    assert ran.result.tool_calls.run == 1


async def test_a_stopping_worker_leaves_a_repeatable_call_to_the_next(
    client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    hold = Hold()
    attempts: list[int] = []

    async def body(arguments: dict[str, Any], context: ToolContext) -> str:
        attempts.append(context.attempt)
        return await hold.then("never") if len(attempts) == 1 else "second worker"

    tool = FakeTool("work", body, effect="idempotent")
    provider = ScriptedModel([calls("work"), answers()], repeats=True)
    async with a_loop(client, provider, tool, graceful_shutdown_timeout=timedelta(seconds=0.1)) as loop:
        handle = await loop.start()
        await hold.reached()
    logged = [record for record in caplog.records if record.name == "temporalio.activity"]
    assert [(record.message.partition(" (")[0], record.exc_info) for record in logged] == [
        ("work was cut off: the worker was stopped meanwhile", None)
    ], "an orderly end needs no traceback"
    async with a_loop(client, provider, tool, task_queue=loop.task_queue):
        await loop.ended(handle)

    assert provider.seen[1].messages[-1].text == "second worker"
    assert len({context.idempotency_key for context in tool.contexts}) == 1
