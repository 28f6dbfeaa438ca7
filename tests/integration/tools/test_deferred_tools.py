"""Tools whose results come later, on a real server: completed, refused, expired, interrupted."""

import asyncio
import json
import time
from typing import Any

import pytest
from temporalio.client import Client

import orga
from orga.activities.ports import ToolContext, ToolError
from orga.client.errors import Refused, RunEnded
from orga.client.journal.reading import read_journal
from orga.client.runs.agents import AgentHandle
from orga.testing import FakeTool, answers, calls
from orga.workflows.types.record import InvalidInput
from orga.workflows.types.tool_calls.breakers import BreakerOptions
from orga.workflows.types.tool_calls.recovery import Recovery
from orga.workflows.types.tool_calls.tools import Effect, ToolOptions
from tests.support.hold import Hold, wait_until
from tests.support.runs.approvals import Asks, approval_argument, wait_for_held_calls
from tests.support.runs.deferred import PARAMETERS, SCORE, a_check, checks, completion, refusal, waiting_calls
from tests.support.runs.loop import WORKER_FACTS, a_loop
from tests.support.runs.notified import a_notifying_loop
from tests.support.runs.questions import send_update, tool_results_in
from tests.support.web.webhook_receiver import Receiver, webhook_receiver


async def test_a_call_waits_for_its_result_and_keeps_the_gate_its_key_and_its_journal(client: Client) -> None:
    started: list[tuple[dict[str, Any], ToolContext]] = []

    def start(arguments: dict[str, Any], context: ToolContext) -> str:
        started.append((arguments, context))
        return "a ticket, which the model does not see"

    tool = a_check(start=FakeTool("order", start))
    async with a_loop(client, checks(), tool, engine=Asks(tools=("check",))) as loop:
        handle = await loop.start()
        [held] = await wait_for_held_calls(handle)
        assert started == []
        await send_update(handle, "approve", approval_argument(held))
        [wait] = await waiting_calls(handle)
        status = await handle.query("status")
        await AgentHandle(client, handle.id).complete_tool_call(
            wait["wait_id"], result={"score": 640, "note": "in\u200bvisible"}, by="bureau"
        )
        ran = await loop.ended(handle)
    [(arguments, context)] = started
    assert (arguments, context.workflow_id, context.idempotency_key) == ({"person": "ada"}, handle.id, wait["wait_id"])
    assert (status["phase"], wait["data"]["tool"], wait["question"]) == ("waiting", "check", "the result of check")
    assert tool_results_in(loop)[0].endswith('{"score":640,"note":"invisible"}')
    assert [each.data["choice"] for each in ran.journal if each.event == "ApprovalResolved" and "choice" in each.data]
    resolved = [each.data for each in ran.journal if each.event == "ApprovalResolved" and each.data["kind"] == "result"]
    assert resolved == [{"kind": "result", "id": wait["wait_id"], "choice": "completed", "by": "bureau"}]
    [collected] = [each.data["outcomes"] for each in ran.journal if each.event == "ObservationsCollected"][:1]
    assert [each["outcome"] for each in collected] == ["ok"]
    assert ran.result.tool_calls.run == 1


async def test_a_result_that_is_no_json_is_not_sent(client: Client) -> None:
    with pytest.raises(InvalidInput, match="result: is no JSON"):
        await AgentHandle(client, "no-such-run").complete_tool_call("key", result=object(), by="bureau")


async def test_the_wait_costs_one_timer_and_no_time_of_the_run(client: Client) -> None:
    async with a_loop(client, checks(), a_check()) as loop:
        began = time.monotonic()
        handle = await loop.start()
        [wait] = await waiting_calls(handle)
        before = (await handle.describe()).history_length
        await asyncio.sleep(1.5)
        assert (await handle.describe()).history_length == before
        await send_update(handle, "complete_tool_call", completion(wait))
        ran = await loop.ended(handle)
    kinds = [event.WhichOneof("attributes") for event in ran.history.events]
    assert kinds.count("timer_started_event_attributes") == 3  # the run's deadline stops meanwhile, and starts again
    assert len(kinds) < 50
    assert ran.result.duration_s < time.monotonic() - began - 1.4


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"idempotency_key": "nobody"}, "no call waits for a result under 'nobody'; waiting: "),
        ({"result": None}, "give one of result, result_json and error"),
        ({"result": " "}, "give one of result, result_json and error"),
        ({"error": "both"}, "give one of result, result_json and error"),
        ({"result": None, "result_json": "{"}, "this is no JSON"),
        ({"result": None, "result_json": '""'}, "must not be empty"),
        ({"nothing_done": True}, "only for an error"),
        ({"result": "x" * 100_001}, "give at most 100000"),
        ({"by": ""}, "by: "),
        ({"score": 7}, "score: unknown key"),
    ],
)
async def test_bad_completions_are_refused_before_they_reach_history(
    client: Client, given: dict[str, Any], why: str
) -> None:
    async with a_loop(client, checks(), a_check()) as loop:
        handle = await loop.start()
        [wait] = await waiting_calls(handle)
        assert why in await refusal(handle, completion(wait) | given)
        raws: list[Any] = [None, 7, "fine", [wait["wait_id"]], {}]
        for raw in raws:
            await refusal(handle, raw)
        await send_update(handle, "complete_tool_call", completion(wait))
        ran = await loop.ended(handle)
    received = [each.data for each in ran.journal if each.event == "InterventionReceived"]
    assert received == [{"kind": "complete_tool_call", "text": {"idempotency_key": wait["wait_id"]}, "by": "bureau"}]
    assert tool_results_in(loop) == ["fine"]


async def test_the_first_completion_counts_and_the_same_again_succeeds(client: Client) -> None:
    hold = Hold()
    steps = [calls("check", arguments={"person": "ada"}), hold.step(answers("done"))]
    async with a_loop(client, steps, a_check()) as loop:
        handle = await loop.start()
        [wait] = await waiting_calls(handle)
        for _ in range(2):
            await send_update(handle, "complete_tool_call", completion(wait, {"score": 1}))
        await send_update(handle, "complete_tool_call", completion(wait, result_json='{"score":1}', by="another"))
        await hold.reached()
        assert "completed already, with another result" in await refusal(handle, completion(wait, {"score": 2}))
        hold.go.set()
        ran = await loop.ended(handle)
        with pytest.raises(RunEnded):
            await AgentHandle(client, handle.id).complete_tool_call(wait["wait_id"], result=1, by="bureau")
    assert tool_results_in(loop) == ['{"score":1}']
    assert [each.data["by"] for each in ran.journal if each.event == "ApprovalResolved"] == ["bureau"]


async def test_a_result_that_does_not_fit_is_refused_and_the_call_waits_on(client: Client) -> None:
    async with a_loop(client, checks(), a_check(output_schema=SCORE)) as loop:
        handle = await loop.start()
        [wait] = await waiting_calls(handle)
        run = AgentHandle(client, handle.id)
        with pytest.raises(Refused, match=r"does not fit the output schema: \$\.score: -1 is less"):
            await run.complete_tool_call(wait["wait_id"], result={"score": -1}, by="bureau")
        [again] = await waiting_calls(handle)
        assert (again["since"], again["data"]["expires_at"]) == (wait["since"], wait["data"]["expires_at"])
        await run.complete_tool_call(wait["wait_id"], result={"score": 640}, by="bureau")
        await loop.ended(handle)
    assert tool_results_in(loop) == ['{"score":640}']


@pytest.mark.parametrize(
    ("schema", "given", "content"),
    [
        pytest.param(SCORE, {"result_json": '{\n"score":\n640}'}, '{"score":640}', id="an object of several lines"),
        pytest.param({"type": "string"}, {"result": 'fine\n{"score":1}'}, '"fine\\n{\\"score\\":1}"', id="a text"),
    ],
)
async def test_the_value_that_was_checked_is_the_last_line(
    client: Client, schema: dict[str, Any], given: dict[str, Any], content: str
) -> None:
    async with a_loop(client, checks(), a_check(output_schema=schema)) as loop:
        handle = await loop.start()
        [wait] = await waiting_calls(handle)
        await send_update(handle, "complete_tool_call", {"idempotency_key": wait["wait_id"], "by": "bureau"} | given)
        await loop.ended(handle)
    assert tool_results_in(loop) == [content]


async def test_a_signal_completes_too_and_a_useless_one_is_recorded(client: Client) -> None:
    async with a_loop(client, checks(), a_check(output_schema=SCORE)) as loop:
        handle = await loop.start()
        [wait] = await waiting_calls(handle)
        for given in ("fine", completion(wait) | {"idempotency_key": "x"}, completion(wait, "fine")):
            await handle.signal("complete_tool_call", given)

        async def are_refused() -> bool:
            events = [entry.event async for entry in read_journal(client, handle.id)]
            return events.count("InterventionRefused") == 3

        await wait_until(are_refused)
        await handle.signal("complete_tool_call", {"id": "s1"} | completion(wait, {"score": 3}))
        ran = await loop.ended(handle)
    assert tool_results_in(loop) == ['{"score":3}']
    refused = [each.data["reason"] for each in ran.journal if each.event == "InterventionRefused"]
    assert refused[0].startswith("input: give an object")
    assert refused[1].startswith("no call waits for a result under 'x'")
    assert refused[2] == 'result: does not fit the output schema: $: "fine" is not of type "object"'


@pytest.mark.parametrize(
    ("effect", "more", "unknown"),
    [
        ("idempotent", {}, False),
        ("irreversible", {"nothing_done": True}, False),
        ("irreversible", {}, True),
    ],
)
async def test_an_error_is_the_failure_of_the_call(
    client: Client, effect: Effect, more: dict[str, Any], unknown: bool
) -> None:
    async with a_loop(client, checks(), a_check(effect=effect)) as loop:
        handle = await loop.start()
        [wait] = await waiting_calls(handle)
        await send_update(handle, "complete_tool_call", completion(wait, error="no such person", **more))
        ran = await loop.ended(handle)
    [text] = tool_results_in(loop)
    assert text.startswith("[Error] JobFailed: no such person")
    assert ("may have taken effect" in text) == unknown
    assert ran.result.tool_calls.failed == 1


@pytest.mark.parametrize(("effect", "unknown"), [("idempotent", False), ("irreversible", True)])
async def test_a_wait_expires_with_an_error_that_the_model_can_act_on(
    client: Client, effect: Effect, unknown: bool
) -> None:
    hold = Hold()
    steps = [calls("check", arguments={"person": "ada"}), hold.step(answers("done"))]
    async with a_loop(client, steps, a_check(effect=effect, expires_s=1)) as loop:
        handle = await loop.start()
        [wait] = await waiting_calls(handle)
        await hold.reached()
        assert "has expired: no result arrived in time" in await refusal(handle, completion(wait))
        hold.go.set()
        ran = await loop.ended(handle)
    [text] = tool_results_in(loop)
    assert text.startswith("[Error] Expired: no result of check arrived within 1 s")
    assert ("may have taken effect" in text) == unknown
    assert [each.data["choice"] for each in ran.journal if each.event == "ApprovalResolved"] == ["expired"]


async def test_several_calls_wait_together_and_others_proceed(client: Client) -> None:
    async with a_loop(client, checks("check", "look", "check"), a_check(), FakeTool("look", "seen")) as loop:
        handle = await loop.start(max_concurrent_tools=1)
        first, second = await waiting_calls(handle, 2)
        assert first["wait_id"] != second["wait_id"]
        await send_update(handle, "complete_tool_call", completion(second, "two"))
        await waiting_calls(handle, 1)
        await send_update(handle, "complete_tool_call", completion(first, "one"))
        await loop.ended(handle)
    assert tool_results_in(loop) == ["one", "seen", "two"]


async def test_a_result_that_arrives_while_the_work_is_being_started_counts(client: Client) -> None:
    async def start(arguments: dict[str, Any], context: ToolContext) -> str:
        handle = client.get_workflow_handle(context.workflow_id)
        await handle.signal("complete_tool_call", {"idempotency_key": context.idempotency_key, "by": "b", "result": 1})
        raise ToolError("the reply of the bureau got lost", retryable=True)

    async with a_loop(client, checks(), a_check(start=FakeTool("order", start), effect="irreversible")) as loop:
        await loop.run()
    assert tool_results_in(loop) == ["1"]


async def test_work_that_cannot_be_started_is_a_failed_call(client: Client) -> None:
    order = FakeTool("order", ToolError("the bureau is closed"))
    async with a_loop(client, checks(), a_check(start=order)) as loop:
        ran = await loop.run()
    assert tool_results_in(loop) == ["[Error] ToolError: the bureau is closed"]
    assert [each.data["choice"] for each in ran.journal if each.event == "ApprovalResolved"] == ["none"]


async def test_an_open_circuit_turns_starts_away_but_no_results(client: Client) -> None:
    """Its scope is the worker: the run's own circuit does not see the end of a call either."""

    def start(arguments: dict[str, Any], context: ToolContext) -> str:
        if len(order.contexts) > 1:
            raise ToolError("the bureau is down", retryable=True)
        return "ordered"

    breaker = BreakerOptions(scope="worker", failure_threshold=1, recovery_s=600)
    order = FakeTool("order", start, "idempotent", options=ToolOptions(max_attempts=1, breaker=breaker))
    async with a_loop(client, checks("check", "check"), a_check(start=order)) as loop:
        handle = await loop.start(max_concurrent_tools=1)
        [wait] = await waiting_calls(handle)
        await send_update(handle, "complete_tool_call", completion(wait))
        ran = await loop.ended(handle)
    assert tool_results_in(loop) == ["fine", "[Error] ToolError: the bureau is down"]
    [collected] = [each.data["outcomes"] for each in ran.journal if each.event == "ObservationsCollected"][:1]
    assert [each["outcome"] for each in collected] == ["ok", "failed"]


async def test_a_webhook_can_start_the_work(client: Client) -> None:
    with webhook_receiver() as receiver:
        notifies = WORKER_FACTS.model_copy(update={"notify": ("result",)})
        async with a_notifying_loop(client, receiver, a_check(), steps=checks(), setup=notifies) as loop:
            handle = await loop.start()
            await wait_until(lambda: has_come(receiver))
            [sent] = receiver.received
            order = json.loads(sent.body)
            given = {"idempotency_key": order["wait_id"], "by": "hook", "result": 7}
            await client.get_workflow_handle(order["workflow_id"]).signal("complete_tool_call", given)
            await loop.ended(handle)
    assert (order["kind"], order["calls"][0]["tool"], order["calls"][0]["arguments"]) == (
        "result",
        "check",
        '{"person":"ada"}',
    )
    assert tool_results_in(loop) == ["7"]


async def has_come(receiver: Receiver) -> bool:
    return bool(receiver.received)


async def test_an_abort_ends_the_wait(client: Client) -> None:
    async with a_loop(client, checks(), a_check(effect="irreversible")) as loop:
        handle = await loop.start()
        [wait] = await waiting_calls(handle)
        await handle.signal("abort", "enough")
        ran = await loop.ended(handle)
        with pytest.raises(RunEnded):
            await AgentHandle(client, handle.id).complete_tool_call(wait["wait_id"], result=1, by="bureau")
    assert ran.result.termination.reason == "aborted"
    assert ran.result.tool_calls.failed == 1


async def test_a_paused_run_takes_the_result_and_goes_on_when_it_is_resumed(client: Client) -> None:
    async with a_loop(client, checks(), a_check()) as loop:
        handle = await loop.start()
        [wait] = await waiting_calls(handle)
        await handle.signal("pause")
        await send_update(handle, "complete_tool_call", completion(wait))

        async def is_paused() -> bool:
            return (await handle.query("status"))["phase"] == "paused"

        await wait_until(is_paused)
        await handle.signal("resume")
        await loop.ended(handle)
    assert tool_results_in(loop) == ["fine"]


async def test_recovery_sees_the_failure_and_a_retry_waits_under_the_same_key(client: Client) -> None:
    order = FakeTool("order", "ordered")
    recovering = ToolOptions(recovery=Recovery(strategy="escalate"))
    tool = orga.DeferredTool("check", start=_with(order, recovering), parameters=PARAMETERS)
    async with a_loop(client, checks(), tool) as loop:
        handle = await loop.start()
        [wait] = await waiting_calls(handle)
        await send_update(handle, "complete_tool_call", completion(wait, error="the line is dead"))

        async def is_escalated() -> bool:
            return [each["kind"] for each in (await handle.query("status"))["waiting"]] == ["escalation"]

        await wait_until(is_escalated)
        [asked] = (await handle.query("status"))["waiting"]
        await send_update(handle, "resolve_escalation", {"escalation_id": asked["wait_id"], "choice": "retry"})
        [again] = await waiting_calls(handle)
        assert again["wait_id"] == wait["wait_id"]
        await send_update(handle, "complete_tool_call", completion(again))
        await loop.ended(handle)
    assert tool_results_in(loop) == ["fine"]
    assert len({context.idempotency_key for context in order.contexts}) == 1
    assert len(order.contexts) == 2


def _with(tool: FakeTool, options: ToolOptions) -> FakeTool:
    tool.options = options
    return tool


async def test_a_result_is_untrusted_and_cut_as_that_of_any_tool(client: Client) -> None:
    tool = orga.DeferredTool("check", start=FakeTool("order", options=ToolOptions(max_result_bytes=300)))
    async with a_loop(client, checks(), tool) as loop:
        handle = await loop.start()
        [wait] = await waiting_calls(handle)
        await send_update(handle, "complete_tool_call", completion(wait, "x" * 5_000))
        await loop.ended(handle)
    [text] = tool_results_in(loop)
    assert len(text) <= 300
    assert "[cut: 5000 bytes in all" in text
