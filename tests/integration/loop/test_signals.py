"""Signals at any moment are applied in order, and recorded in the journal."""

import asyncio
import uuid
from typing import Any

import pytest
from temporalio.api.common.v1 import Payload
from temporalio.client import Client
from temporalio.common import RawValue
from temporalio.service import RPCError, RPCStatusCode

from orga.activities.ports import ModelRequest
from orga.testing import FakeTool, ScriptedModel, answers, calls
from orga.workflows.types.messages import Reply
from tests.support.hold import Hold, wait_until
from tests.support.runs.loop import WORKER_FACTS, Loop, Ran, a_loop, a_worker
from tests.support.runs.waits import wait_until_paused

GUIDANCE = "[Guidance from the operator] "


def user_texts(request: ModelRequest) -> list[str]:
    return [m.text for m in request.messages if m.role == "user"][1:]


def received(ran: Ran) -> list[tuple[str, Any]]:
    return [(e.data["kind"], e.data.get("text")) for e in ran.journal if e.event == "InterventionReceived"]


async def test_signals_before_the_first_task_precede_the_first_model_call(client: Client) -> None:
    provider = ScriptedModel([answers()], repeats=True)
    loop = Loop(client, f"test-{uuid.uuid4()}", provider)
    handle = await loop.start()
    for text in ("one", "two"):
        await handle.signal("steer", text)
    await handle.signal("add_context", "the sky is green")
    async with a_worker(loop):
        ran = await loop.ended(handle)

    assert user_texts(provider.seen[0]) == [
        f"{GUIDANCE}one",
        f"{GUIDANCE}two",
        "[Context from the operator]\nthe sky is green",
    ]
    assert received(ran) == [("steer", "one"), ("steer", "two"), ("add_context", "the sky is green")]
    assert len(provider.seen) == 1


async def test_an_abort_before_the_first_task_ends_the_run_without_a_model_call(client: Client) -> None:
    provider = ScriptedModel([answers()], repeats=True)
    loop = Loop(client, f"test-{uuid.uuid4()}", provider)
    handle = await loop.start()
    await handle.signal("abort", "wrong task")
    async with a_worker(loop):
        ran = await loop.ended(handle)

    assert (ran.result.termination.reason, ran.result.termination.detail) == ("aborted", "wrong task")
    assert provider.seen == []


async def test_a_pause_before_the_first_task_delays_the_first_model_call(client: Client) -> None:
    provider = ScriptedModel([answers()], repeats=True)
    loop = Loop(client, f"test-{uuid.uuid4()}", provider)
    handle = await loop.start()
    await handle.signal("pause")
    async with a_worker(loop):
        await wait_until_paused(handle)
        assert provider.seen == []
        await handle.signal("resume")
        ran = await loop.ended(handle)

    assert ran.result.termination.reason == "completed"


async def test_steers_during_a_model_call_reach_the_next_one_in_order(client: Client) -> None:
    hold = Hold()
    provider = ScriptedModel([hold.step(calls("look")), answers()], repeats=True)
    async with a_loop(client, provider, FakeTool("look")) as loop:
        handle = await loop.start()
        await hold.reached()
        for text in ("a", "b", "c"):
            await handle.signal("steer", text)
        hold.go.set()
        ran = await loop.ended(handle)

    assert user_texts(provider.seen[1]) == [GUIDANCE + text for text in "abc"]
    roles = [m.role for m in provider.seen[1].messages]
    assert roles == ["user", "assistant", "tool", "user", "user", "user"]
    assert [text for _, text in received(ran)] == ["a", "b", "c"]


async def test_a_steer_during_a_tool_follows_its_result(client: Client) -> None:
    hold = Hold()
    provider = ScriptedModel([calls("look"), answers()], repeats=True)
    async with a_loop(client, provider, FakeTool("look", lambda a, c: hold.then("seen"))) as loop:
        handle = await loop.start()
        await hold.reached()
        await handle.signal("steer", "look at the left")
        hold.go.set()
        await loop.ended(handle)

    assert [m.text for m in provider.seen[1].messages[-2:]] == ["seen", f"{GUIDANCE}look at the left"]


async def test_a_steer_during_the_final_answer_is_taken_into_account(client: Client) -> None:
    """An operator who steers a moment too late must not be ignored."""
    hold = Hold()
    provider = ScriptedModel([hold.step(answers("first")), answers("second")], repeats=True)
    async with a_loop(client, provider) as loop:
        handle = await loop.start()
        await hold.reached()
        await handle.signal("steer", "in French")
        hold.go.set()
        ran = await loop.ended(handle)

    assert (ran.result.output, ran.result.iterations) == ("second", 2)
    last = provider.seen[1].messages
    assert [(m.role, m.text) for m in last[1:]] == [("assistant", "first"), ("user", f"{GUIDANCE}in French")]


async def test_a_steer_during_the_last_part_of_a_truncated_answer_is_taken_into_account(client: Client) -> None:
    hold = Hold()
    cut = answers("more ", finish="length")
    provider = ScriptedModel([cut, cut, hold.step(cut), answers("short")], repeats=True)
    async with a_loop(client, provider) as loop:
        handle = await loop.start()
        await hold.reached()
        await handle.signal("steer", "one word only")
        hold.go.set()
        ran = await loop.ended(handle)

    assert user_texts(provider.seen[3])[-1] == f"{GUIDANCE}one word only"
    assert ran.result.termination.reason == "completed"


async def test_a_steer_at_the_last_iteration_keeps_the_answer_and_ends_at_the_limit(client: Client) -> None:
    hold = Hold()
    async with a_loop(client, [hold.step(answers("all I know"))]) as loop:
        handle = await loop.start(max_iterations=1)
        await hold.reached()
        await handle.signal("steer", "too late")
        hold.go.set()
        ran = await loop.ended(handle)

    assert (ran.result.termination.reason, ran.result.output) == ("max_iterations", "all I know")
    assert received(ran) == [("steer", "too late")]


async def test_a_pause_stops_before_the_next_phase_and_stops_the_clock(client: Client) -> None:
    hold = Hold()
    tool = FakeTool("look")
    provider = ScriptedModel([hold.step(calls("look")), answers()], repeats=True)
    async with a_loop(client, provider, tool) as loop:
        handle = await loop.start(timeout_s=4)
        await hold.reached()
        await handle.signal("pause")
        hold.go.set()
        await wait_until_paused(handle)
        before = (await handle.query("status"))["budgets"]["time_s"]
        await asyncio.sleep(5)
        await handle.signal("steer", "while paused")  # a query alone would report the clock of the last task
        status = await handle.query("status")
        assert (status["paused"], status["phase"], status["budgets"]["time_s"]) == (True, "paused", before)
        assert tool.contexts == []
        await handle.signal("resume")
        ran = await loop.ended(handle)

    assert ran.result.termination.reason == "completed"
    assert ran.result.duration_s < 4
    assert user_texts(provider.seen[1]) == [f"{GUIDANCE}while paused"]


async def test_pausing_and_resuming_twice_changes_nothing(client: Client) -> None:
    hold = Hold()
    async with a_loop(client, [hold.step(calls("look")), answers()], FakeTool("look")) as loop:
        handle = await loop.start()
        await hold.reached()
        for name in ("resume", "pause", "pause"):
            await handle.signal(name)
        hold.go.set()
        await wait_until_paused(handle)
        for name in ("resume", "resume"):
            await handle.signal(name)
        ran = await loop.ended(handle)

    assert ran.result.termination.reason == "completed"
    assert [kind for kind, _ in received(ran)] == ["resume", "pause", "pause", "resume", "resume"]


async def test_an_abort_ends_a_paused_run(client: Client) -> None:
    hold = Hold()
    tool = FakeTool("look")
    async with a_loop(client, [hold.step(calls("look")), answers()], tool) as loop:
        handle = await loop.start()
        await hold.reached()
        await handle.signal("pause")
        hold.go.set()
        await wait_until_paused(handle)
        await handle.signal("abort", "enough")
        ran = await loop.ended(handle)

    assert (ran.result.termination.reason, ran.result.termination.detail) == ("aborted", "enough")
    assert (ran.result.iterations, ran.result.usage.model_calls, tool.contexts) == (1, 1, [])


async def test_signals_around_continue_as_new_are_neither_lost_nor_reordered(client: Client) -> None:
    """Every iteration continues as new while steers keep arriving."""
    wanted = [f"steer {i}" for i in range(30)]
    provider = ScriptedModel([lambda request: _until_steered(request, wanted)], repeats=True)
    soon = WORKER_FACTS.model_copy(update={"roll_over_events": 10})
    async with a_loop(client, provider, FakeTool("look"), setup=soon) as loop:
        handle = await loop.start(max_iterations=1_000, max_total_tokens=1_000_000, context_token_budget=100_000)
        for number, text in enumerate(wanted):
            if number % 5 == 0:
                calls_so_far = len(provider.seen)
                await wait_until(lambda: has_called(provider, calls_so_far + 1))  # noqa: B023
            await handle.signal("steer", text)
        ran = await loop.ended(handle)

    assert ran.result.output == "steered"
    assert user_texts(provider.seen[-1]) == [GUIDANCE + text for text in wanted]
    assert [text for _, text in received(ran)] == wanted
    assert len(ran.histories) > 2


def _until_steered(request: ModelRequest, wanted: list[str]) -> Reply:
    return answers("steered") if len(user_texts(request)) == len(wanted) else calls("look")


def raw(data: bytes, encoding: bytes = b"json/plain") -> RawValue:
    return RawValue(Payload(metadata={"encoding": encoding}, data=data))


ODD_ARGUMENTS = [
    pytest.param([], "", id="no argument"),
    pytest.param([None], "", id="null"),
    pytest.param([{"why": "x"}], None, id="an object"),
    pytest.param([[1, 2]], None, id="a list"),
    pytest.param([17], "17", id="a number"),
    pytest.param(["a", "b"], "a\nb", id="two arguments"),
    pytest.param(["nul\x00 bell\x07"], "nul\ufffd bell ", id="control characters"),
    pytest.param([raw(b'"\\ud800 half"')], None, id="a lone surrogate"),
    pytest.param([raw(b"{not json")], None, id="broken JSON"),
    pytest.param([raw(b"\xff\xfe", b"binary/plain")], None, id="bytes"),
    pytest.param([raw(b"?", b"some/other")], None, id="an unknown encoding"),
]


@pytest.mark.parametrize(("arguments", "text"), ODD_ARGUMENTS)
async def test_odd_arguments_do_no_harm(client: Client, arguments: list[Any], text: str | None) -> None:
    """The second worker rebuilds the conversation from the history, so reading the argument must be deterministic."""
    hold = Hold()
    provider = ScriptedModel(
        [hold.step(calls("look")), calls("look"), hold.step(calls("look")), answers()], repeats=True
    )
    tool = FakeTool("look")
    loop = Loop(client, f"test-{uuid.uuid4()}", provider)
    async with a_worker(loop, tool, max_cached_workflows=0):
        handle = await loop.start()
        await hold.reached()
        await handle.signal("steer", args=arguments)
        await handle.signal("add_context", args=arguments)
        hold.go.set()
        await wait_until(lambda: has_called(provider, 3))
        ran = await loop.ended(handle)

    assert ran.result.termination.reason == "completed", ran.result.termination
    if text is not None:
        assert user_texts(provider.seen[-1])[0] == GUIDANCE + text


async def has_called(provider: ScriptedModel, times: int) -> bool:
    return len(provider.seen) >= times


@pytest.mark.parametrize(("arguments", "text"), ODD_ARGUMENTS)
async def test_odd_arguments_do_not_prevent_an_abort(client: Client, arguments: list[Any], text: str | None) -> None:
    hold = Hold()
    async with a_loop(client, [hold.step(answers())]) as loop:
        handle = await loop.start()
        await hold.reached()
        await handle.signal("pause", args=arguments)
        await handle.signal("resume", args=arguments)
        await handle.signal("abort", args=arguments)
        ran = await loop.ended(handle)

    assert ran.result.termination.reason == "aborted"
    if text is not None:
        assert ran.result.termination.detail == (text or "aborted by the operator")


async def test_many_long_steers_at_once_fit_into_a_model_call(client: Client) -> None:
    """Each is cut, and together they stay below the server's limit of 2 MB per payload."""
    hold = Hold()
    provider = ScriptedModel([hold.step(calls("look")), answers()], repeats=True)
    async with a_loop(client, provider, FakeTool("look")) as loop:
        handle = await loop.start(context_token_budget=10_000_000)
        await hold.reached()
        for number in range(60):
            await handle.signal("steer", f"{number} " + "\x07x" * 30_000)
        hold.go.set()
        ran = await loop.ended(handle)

    assert ran.result.termination.reason == "completed"
    assert [text.removeprefix(GUIDANCE).split()[0] for text in user_texts(provider.seen[1])] == [
        str(number) for number in range(60)
    ]


async def test_unknown_signals_do_no_harm_and_are_recorded(client: Client) -> None:
    hold = Hold()
    async with a_loop(client, [hold.step(answers("fine"))]) as loop:
        handle = await loop.start()
        await hold.reached()
        await handle.signal("dance", {"how": "well"})
        await handle.signal("__temporal_dance")
        hold.go.set()
        ran = await loop.ended(handle)

    assert ran.result.output == "fine"
    assert ("dance", None) in received(ran)


async def test_signals_after_the_end_are_refused(client: Client) -> None:
    async with a_loop(client, [answers()]) as loop:
        ran = await loop.run()
        with pytest.raises(RPCError) as refused:
            await ran.handle.signal("steer", "anyone there?")

    assert refused.value.status == RPCStatusCode.NOT_FOUND
