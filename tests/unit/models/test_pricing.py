"""Costs come from the installed price list, or are unknown. Missing token counts are estimated."""

from typing import Any

import pytest

from orga.activities.adapters.models.pricing import cost_usd
from orga.workflows.types.messages import Message
from orga.workflows.types.models.usage import Usage, UsageTotals
from tests.support.model.providers import (
    a_request,
    call_block,
    chunk,
    complete_request,
    message_events,
    message_item,
    response_events,
    stream_response,
    text_block,
)

USAGE = Usage(input_tokens=1_000_000, output_tokens=100_000)


@pytest.mark.parametrize(
    ("provider", "model", "expected"),
    [
        pytest.param("openai", "gpt-4o", 3.5, id="OpenAI"),
        pytest.param("anthropic", "claude-sonnet-4-20250514", 4.5, id="Anthropic"),
        pytest.param("openrouter", "anthropic/claude-sonnet-4", 4.5, id="OpenRouter"),
        pytest.param("openrouter", "nobody/nothing", None, id="an unknown model"),
        pytest.param("ollama", "gpt-4o", None, id="a known name on a local server"),
        pytest.param("openai-compatible", "gpt-4o", None, id="a known name on another server"),
        pytest.param("openai", "", None, id="no model"),
    ],
)
def test_the_cost_comes_from_the_price_list(provider: str, model: str, expected: float | None) -> None:
    assert cost_usd(provider, model, USAGE) == pytest.approx(expected)


def test_a_cache_read_is_cheaper_and_a_cache_write_costs_more() -> None:
    def cost(cached: int, written: int) -> float:
        usage = Usage(input_tokens=10_000, cached_input_tokens=cached)
        return cost_usd("anthropic", "claude-sonnet-4-20250514", usage, cache_write_tokens=written) or 0.0

    assert cost(9_000, 0) < cost(0, 0) < cost(0, 9_000)


def test_contradictory_counts_have_no_price() -> None:
    assert cost_usd("openai", "gpt-4o", Usage(input_tokens=1, cached_input_tokens=50)) is None


LONG = a_request(model="gpt-5.5", messages=(Message.of("user", "a word " * 1_000),))
SAID = "another word " * 100


def counted(**usage: Any) -> list[dict[str, object]]:
    return [chunk(content=SAID), chunk("stop"), {"choices": [], "usage": usage}]


COUNTED: dict[str, Any] = {"prompt_tokens": 20, "completion_tokens": 5}
STOP: dict[str, Any] = chunk("stop", content=SAID)


@pytest.mark.parametrize(
    ("frames", "thinking"),
    [
        pytest.param(counted(**COUNTED), 0, id="none"),
        pytest.param(counted(**COUNTED, completion_tokens_details={"reasoning_tokens": 4}), 4, id="in the details"),
        pytest.param(counted(**COUNTED, total_tokens=90), 65, id="only in the total"),
        pytest.param(counted(**COUNTED, completion_tokens_details={"reasoning_tokens": 9}), 5, id="more than all"),
        pytest.param(counted(**COUNTED, reasoning_tokens=4), 4, id="Perplexity's place"),
    ],
)
async def test_thinking_is_counted_apart_within_the_output(frames: list[dict[str, object]], thinking: int) -> None:
    reply, _, _ = await complete_request("openai-compatible", stream_response(*frames, "[DONE]"))
    assert reply.usage.thinking_tokens == thinking
    assert reply.usage.output_tokens >= thinking


@pytest.mark.parametrize(
    ("frames", "usage"),
    [
        pytest.param(counted(**COUNTED), (20, 5, 0), id="in a chunk of its own"),
        pytest.param([STOP | {"x_groq": {"id": "r", "usage": COUNTED}}], (20, 5, 0), id="Groq's own place"),
        pytest.param([{"choices": [STOP["choices"][0] | {"usage": COUNTED}]}], (20, 5, 0), id="in the choice"),
        pytest.param([*counted(**COUNTED), STOP | {"usage": None}], (20, 5, 0), id="null at the end"),
        pytest.param(counted(**COUNTED, total_tokens=90), (20, 70, 0), id="thinking counted only in the total"),
        pytest.param(counted(**COUNTED, prompt_cache_hit_tokens=8), (20, 5, 8), id="DeepSeek's cache"),
        pytest.param(counted(**COUNTED, cached_tokens=8), (20, 5, 8), id="Moonshot's cache"),
        pytest.param(counted(**COUNTED, cache_read_input_tokens=8), (20, 5, 8), id="LiteLLM's cache"),
    ],
)
async def test_usage_is_read_from_every_known_field(
    frames: list[dict[str, object]], usage: tuple[int, int, int]
) -> None:
    reply, _, _ = await complete_request("openai-compatible", stream_response(*frames, "[DONE]"))
    used = reply.usage
    assert (used.input_tokens, used.output_tokens, used.cached_input_tokens) == usage
    assert not used.estimated


@pytest.mark.parametrize(
    ("kind", "frames"),
    [
        pytest.param("openai", [chunk("stop", content=SAID)], id="chat completions"),
        pytest.param("openai", counted(prompt_tokens=0, completion_tokens=0), id="zeros"),
        pytest.param("responses", list(response_events(message_item(SAID), usage=None)), id="responses"),
        pytest.param(
            "anthropic",
            [event | {"usage": None, "message": None} for event in message_events(text_block(SAID))],
            id="messages",
        ),
    ],
)
async def test_missing_usage_is_estimated_and_marked(kind: str, frames: list[dict[str, object]]) -> None:
    reply, _, _ = await complete_request(kind, stream_response(*frames, size=500), request=LONG)
    used = reply.usage
    assert used.estimated
    assert 1_750 < used.input_tokens < 2_500
    assert 300 < used.output_tokens < 500
    assert (reply.cost_usd is None) == (kind == "anthropic"), "the model is from OpenAI"


async def test_a_reported_count_is_not_estimated() -> None:
    reply, _, _ = await complete_request("openai", stream_response(*counted(prompt_tokens=20), "[DONE]"), request=LONG)
    assert reply.usage.input_tokens == 20
    assert reply.usage.output_tokens > 300
    assert reply.usage.estimated


async def test_tool_calls_count_as_output() -> None:
    events = message_events(call_block("c", "write", f'{{"text": "{SAID}"}}'), stop="tool_use")
    frames = [event | ({"usage": {"input_tokens": 7}} if event["type"] == "message_delta" else {}) for event in events]
    reply, _, _ = await complete_request("anthropic", stream_response(*frames, size=500))
    assert reply.usage.output_tokens > 300


async def test_a_missing_bill_is_estimated() -> None:
    """A cost limit is allowed for every model of a router, because a router bills each reply."""
    request = a_request(model="nobody/nothing", messages=LONG.messages)
    reply, _, _ = await complete_request("openrouter", stream_response(chunk("stop", content=SAID)), request=request)
    assert reply.cost_usd is not None
    assert 0.02 < reply.cost_usd < 0.1


def test_totals_show_the_number_of_estimated_calls_only_if_there_are_any() -> None:
    sure, guessed = Usage(input_tokens=5), Usage(input_tokens=5, estimated=True)
    totals = UsageTotals().plus(sure, None)
    assert "estimated_calls" not in totals.model_dump()
    assert "estimated" not in sure.model_dump()
    more = totals.plus(guessed, 0.1).plus_totals(UsageTotals().plus(guessed, None))
    assert more.model_dump()["estimated_calls"] == 2
    assert UsageTotals.model_validate_json(more.model_dump_json()) == more
    assert guessed.model_dump(exclude_unset=True) == {"input_tokens": 5, "estimated": True}
