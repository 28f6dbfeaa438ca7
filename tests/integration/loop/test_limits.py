"""A limit ends a run with a complete result."""

from typing import Any

import pytest
from temporalio.client import Client

from orga.testing import FakeTool, ScriptedModel, answers, calls
from tests.support.runs.loop import a_loop


async def test_endless_tool_calls_end_at_exactly_max_iterations(client: Client) -> None:
    provider = ScriptedModel([calls("look")], repeats=True)
    tool = FakeTool("look")
    async with a_loop(client, provider, tool) as loop:
        ran = await loop.run(max_iterations=3)

    assert (len(provider.seen), len(tool.contexts)) == (3, 3)
    assert (ran.result.termination.reason, ran.result.iterations) == ("max_iterations", 3)
    assert ran.result.usage.model_calls == 3


@pytest.mark.parametrize(
    ("limit", "model_calls"),
    [
        pytest.param(1, 1, id="less than one turn allows one turn"),
        pytest.param(220, 2, id="reached exactly is reached"),
        pytest.param(221, 3, id="one below continues"),
    ],
)
async def test_the_token_limit_is_checked_before_each_turn(client: Client, limit: int, model_calls: int) -> None:
    provider = ScriptedModel([calls("look")], repeats=True)
    async with a_loop(client, provider, FakeTool("look")) as loop:
        ran = await loop.run(max_total_tokens=limit)

    assert len(provider.seen) == model_calls
    assert ran.result.termination.reason == "max_tokens"
    assert ran.result.termination.detail == f"{model_calls * 110} of {limit} tokens"


async def test_a_reply_gets_no_more_tokens_than_are_left(client: Client) -> None:
    provider = ScriptedModel([calls("look"), answers()], repeats=True)
    async with a_loop(client, provider, FakeTool("look")) as loop:
        await loop.run(max_total_tokens=200, max_output_tokens=150)

    assert [request.max_output_tokens for request in provider.seen] == [150, 90]


async def test_the_cost_limit_is_checked_before_each_turn(client: Client) -> None:
    provider = ScriptedModel([calls("look", reply_cost_usd=0.25)], repeats=True)
    async with a_loop(client, provider, FakeTool("look")) as loop:
        ran = await loop.run(max_cost_usd=0.5)

    assert len(provider.seen) == 2
    assert (ran.result.termination.reason, ran.result.usage.cost_usd) == ("max_cost", 0.5)


async def test_a_cost_limit_without_known_prices_limits_nothing(client: Client) -> None:
    async with a_loop(client, [calls("look"), answers()], FakeTool("look")) as loop:
        ran = await loop.run(max_cost_usd=0.000001)

    assert (ran.result.termination.reason, ran.raw["usage"]["cost_usd"]) == ("completed", None)


RESULT = {
    "output": str,
    "data": type(None),
    "iterations": int,
    "termination": dict,
    "duration_s": float,
    "usage": dict,
    "tool_calls": dict,
    "conversation_digest": str,
}
USAGE = ["input_tokens", "output_tokens", "cached_input_tokens", "total_tokens", "model_calls", "cost_usd"]


@pytest.mark.parametrize(
    ("steps", "config"),
    [
        pytest.param([answers("42")], {}, id="completed"),
        pytest.param([calls("look")], {"max_iterations": 1}, id="a limit"),
        pytest.param([answers("")], {}, id="an error"),
    ],
)
async def test_the_result_has_every_key_of_the_contract(
    client: Client, steps: list[Any], config: dict[str, Any]
) -> None:
    async with a_loop(client, steps, FakeTool("look")) as loop:
        ran = await loop.run(**config)

    raw = ran.raw
    assert list(raw) == list(RESULT)
    assert {key: type(value) for key, value in raw.items()} == RESULT
    assert list(raw["termination"]) == ["reason", "detail"]
    assert list(raw["usage"]) == USAGE
    assert list(raw["tool_calls"]) == ["proposed", "run", "denied", "failed"]
    assert raw["conversation_digest"].startswith("sha256:")
    assert len(raw["conversation_digest"]) == len("sha256:") + 64
