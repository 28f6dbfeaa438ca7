"""Budgets on a real server: reserved before a call, settled after it, and raised by a person if the config asks."""

from typing import Any

import pytest
from temporalio.client import Client, WorkflowUpdateFailedError

from orga.activities.adapters.models.registry import ModelRegistry
from orga.testing import FakeTool, answers, calls
from orga.workflows.types.models.usage import ModelPrice
from tests.support.hold import Hold, wait_for_event, wait_until
from tests.support.model.chat_server import Calls, chat_server
from tests.support.model.named import Named
from tests.support.runs.loop import WORKER_FACTS, Ran, a_loop
from tests.support.runs.questions import send_update, tool_results_in, wait_for_question

LIMITS = [
    pytest.param({"max_iterations": 2}, "max_iterations", {"max_iterations": 9}, id="iterations"),
    pytest.param({"max_total_tokens": 220}, "max_tokens", {"max_total_tokens": 10_000}, id="tokens"),
    pytest.param({"max_cost_usd": 0.02}, "max_cost", {"max_cost_usd": 1.0}, id="money"),
    pytest.param({"max_model_calls": 2}, "max_iterations", {"max_model_calls": 9}, id="model calls"),
    pytest.param({"max_tool_calls": 1}, "max_iterations", {"max_tool_calls": 9}, id="tool calls"),
]

STEPS = [calls("look", reply_cost_usd=0.01)] * 4


def questions(ran: Ran) -> list[tuple[str, str]]:
    return [(e.event, e.data["kind"]) for e in ran.journal if e.event in {"ApprovalRequested", "ApprovalResolved"}]


@pytest.mark.parametrize(("limit", "reason", "more"), LIMITS)
async def test_a_reached_limit_ends_the_run(
    client: Client, limit: dict[str, Any], reason: str, more: dict[str, Any]
) -> None:
    async with a_loop(client, [*STEPS, answers()], FakeTool("look")) as loop:
        ran = await loop.run(**limit)
    assert ran.result.termination.reason == reason
    assert questions(ran) == []


@pytest.mark.parametrize(("limit", "reason", "more"), LIMITS)
async def test_a_run_continues_after_a_person_raises_the_limit(
    client: Client, limit: dict[str, Any], reason: str, more: dict[str, Any]
) -> None:
    async with a_loop(client, [*STEPS, answers("done")], FakeTool("look")) as loop:
        handle = await loop.start(on_exhausted="ask", **limit)
        wait = await wait_for_question(handle)
        assert wait["kind"] == "budget"
        assert wait["question"].startswith(f"{reason}: ")
        await send_update(handle, "extend_budget", {**more, "by": "ada"})
        ran = await loop.ended(handle)
    assert (ran.result.termination.reason, ran.result.output) == ("completed", "done")
    assert ran.result.tool_calls.run == 4
    assert questions(ran) == [("ApprovalRequested", "budget"), ("ApprovalResolved", "budget")]
    assert [e.data for e in ran.journal if e.event == "InterventionReceived"] == [
        {"kind": "extend_budget", "text": more, "by": "ada"}
    ]


@pytest.mark.parametrize(
    ("limit", "reason"), [({"max_cost_usd": 0.02}, "max_cost"), ({"max_total_tokens": 2_000}, "max_tokens")]
)
async def test_a_server_that_reports_no_usage_cannot_exceed_a_limit(
    client: Client, limit: dict[str, Any], reason: str
) -> None:
    """Its tokens are estimated, and the result says so."""
    house = "openai-compatible:qwen"
    with chat_server(*(Calls("look", {"n": n, "at": "the garden " * 20}) for n in range(60))) as server:
        prices = {house: ModelPrice(input=5.0, output=25.0)}
        registry = ModelRegistry({}, {"openai-compatible": server.url}, prices=prices)
        async with a_loop(client, Named(*registry.resolve(house)), FakeTool("look")) as loop:
            ran = await loop.run(max_iterations=60, **limit)
        await registry.close()
    used = ran.result.usage
    assert ran.result.termination.reason == reason
    assert 1 < used.model_calls < 30
    assert used.estimated_calls == used.model_calls
    assert used.cost_usd == pytest.approx((used.input_tokens * 5 + used.output_tokens * 25) / 1e6)
    assert all(entry.data["usage"]["estimated"] for entry in ran.journal if entry.event == "ReasoningComplete")


async def test_time_can_be_extended_and_the_interrupted_call_is_repeated(client: Client) -> None:
    hold = Hold()
    async with a_loop(client, [hold.step(answers("in the end"))]) as loop:
        handle = await loop.start(on_exhausted="ask", timeout_s=4)
        await hold.reached()
        await wait_for_event(hold.cancelled)
        await wait_for_question(handle)
        hold.go.set()
        await send_update(handle, "extend_budget", {"timeout_s": 50})
        ran = await loop.ended(handle)
    assert (ran.result.termination.reason, ran.result.output) == ("completed", "in the end")


@pytest.mark.parametrize(
    ("choice", "reason"),
    [pytest.param("skip", "max_iterations", id="end at the limit"), pytest.param("abort", "aborted", id="abort")],
)
async def test_a_person_can_refuse_more_budget(client: Client, choice: str, reason: str) -> None:
    async with a_loop(client, [*STEPS, answers()], FakeTool("look")) as loop:
        handle = await loop.start(on_exhausted="ask", max_iterations=1)
        wait = await wait_for_question(handle)
        await send_update(handle, "resolve_escalation", {"escalation_id": wait["wait_id"], "choice": choice})
        ran = await loop.ended(handle)
    assert ran.result.termination.reason == reason


async def test_two_reached_limits_are_two_questions(client: Client) -> None:
    async with a_loop(client, [*STEPS, answers()], FakeTool("look")) as loop:
        handle = await loop.start(on_exhausted="ask", max_iterations=1, max_total_tokens=100)
        first = await wait_for_question(handle)
        await send_update(handle, "extend_budget", {"max_iterations": 9})

        async def asks_again() -> bool:
            now = (await handle.query("status"))["waiting"]
            return bool(now) and now[0]["wait_id"] != first["wait_id"]

        await wait_until(asks_again)
        await send_update(handle, "extend_budget", {"max_total_tokens": 9_999})
        ran = await loop.ended(handle)
    assert ran.result.termination.reason == "completed"
    assert len(questions(ran)) == 4


@pytest.mark.parametrize(
    ("given", "says"),
    [
        pytest.param({"max_iterations": 1}, "does not raise the limit of 1", id="not higher"),
        pytest.param({"max_iterations": 0}, "greater than or equal to 1", id="out of bounds"),
        pytest.param({"max_cost_usd": 5.0}, "this run has no such limit", id="a limit that the run does not have"),
        pytest.param({"max_tokens": 5}, "max_tokens: unknown key", id="unknown"),
        pytest.param({}, "name a limit to raise", id="nothing"),
        pytest.param(None, "input", id="not an object"),
    ],
)
async def test_an_extension_that_raises_nothing_is_refused(client: Client, given: Any, says: str) -> None:
    async with a_loop(client, [*STEPS, answers()], FakeTool("look")) as loop:
        handle = await loop.start(on_exhausted="ask", max_iterations=1)
        wait = await wait_for_question(handle)
        with pytest.raises(WorkflowUpdateFailedError) as refused:
            await send_update(handle, "extend_budget", given)
        assert says in str(refused.value.cause)
        await send_update(handle, "resolve_escalation", {"escalation_id": wait["wait_id"], "choice": "skip"})
        await loop.ended(handle)


async def test_calls_beyond_the_budget_are_not_run_and_the_model_may_still_answer(client: Client) -> None:
    look = FakeTool("look")
    async with a_loop(client, [calls("look", "look", "look"), answers("enough")], look) as loop:
        ran = await loop.run(max_tool_calls=2)
    assert len(look.contexts) == 2
    assert tool_results_in(loop)[2] == "[Not run] the run's 2 tool calls are used up; answer with what you have"
    assert (ran.result.termination.reason, ran.result.tool_calls.run) == ("completed", 2)


async def test_a_budget_of_no_tool_calls_runs_none(client: Client) -> None:
    look = FakeTool("look")
    async with a_loop(client, [calls("look"), calls("look"), answers()], look) as loop:
        ran = await loop.run(max_tool_calls=0)
    assert look.contexts == []
    assert ran.result.termination.detail == "limit of 0 tool calls"


async def test_extended_limits_survive_continue_as_new(client: Client) -> None:
    facts = WORKER_FACTS.model_copy(update={"roll_over_events": 1})
    async with a_loop(client, [*STEPS, answers("done")], FakeTool("look"), setup=facts) as loop:
        handle = await loop.start(on_exhausted="ask", max_iterations=1)
        await wait_for_question(handle)
        await send_update(handle, "extend_budget", {"max_iterations": 20})
        ran = await loop.ended(handle)
    assert (ran.result.output, len(ran.histories)) == ("done", 5)


async def test_the_terminate_tool_ends_the_run(client: Client) -> None:
    look = FakeTool("look")
    end = FakeTool("terminate")
    arguments = {"reason": "nothing to do", "output": "all is well"}
    async with a_loop(client, [calls("look", "terminate", arguments=arguments)], look, end) as loop:
        ran = await loop.run()
    assert (ran.result.termination.reason, ran.result.termination.detail) == ("completed", "nothing to do")
    assert (ran.result.output, ran.result.iterations) == ("all is well", 1)
    assert (look.contexts, end.contexts) == ([], [])
