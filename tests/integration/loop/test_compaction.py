"""Conversations that exceed their budget, with every strategy, from the cache and from the history."""

import pytest
from temporalio.client import Client

from orga.activities.ports import ModelError, ModelRequest
from orga.testing import FakeTool, ScriptedModel, calls
from orga.workflows.decisions.conversation import estimated_message_tokens
from tests.support.model.counting import counting, estimate
from tests.support.runs.loop import a_loop
from tests.support.runs.outgrown import (
    BUDGET,
    LOOKS,
    RUN,
    Kept,
    check_what_never_goes,
    compactions,
    kept,
    looking,
    pages,
    run_with_context,
)
from tests.support.values.turns import are_paired

__all__ = ["kept"]


def results(request: ModelRequest) -> list[str]:
    return [message.text.split(" xx")[0] for message in request.messages if message.role == "tool"]


async def test_the_window_drops_the_oldest_messages(client: Client, kept: Kept) -> None:
    provider = counting(looking)
    ran = await run_with_context(client, provider, pages())

    check_what_never_goes(provider)
    reported = compactions(ran)
    assert {entry["strategy"] for entry in reported} == {"sliding_window"}
    assert len(provider.steps[-1].messages) + sum(entry["messages_dropped"] for entry in reported) == 2 + 2 * LOOKS
    assert (ran.result.usage.model_calls, provider.summaries) == (LOOKS + 1, [])
    assert kept.misses in {0, LOOKS + 1}


async def test_masking_replaces_each_old_result_by_one_line(client: Client, kept: Kept) -> None:
    provider = counting(looking)
    ran = await run_with_context(client, provider, pages(), context_strategy="observation_masking")

    check_what_never_goes(provider)
    reported = compactions(ran)
    assert {entry["strategy"] for entry in reported} <= {"observation_masking", "sliding_window"}
    placeholder = "[Result of look left out: 1,007 bytes]"
    first = next(request for request in provider.steps if placeholder in results(request))
    shown = results(first)
    masked = len(shown) - 3
    assert shown == [placeholder] * masked + [f"page {masked + n}" for n in (1, 2, 3)]
    assert reported[0] == {"strategy": "observation_masking", "messages_dropped": 0, "messages_masked": masked}
    assert [m.text for m in first.messages if m.role == "assistant"] == [f"step {n}" for n in range(1, len(shown) + 1)]
    assert kept.misses in {0, LOOKS + 1}


async def test_the_strategy_none_drops_nothing(client: Client) -> None:
    provider = counting(looking)
    async with a_loop(client, provider, pages()) as loop:
        ran = await loop.run("the task", **RUN, context_strategy="none")

    assert compactions(ran) == []
    assert len(provider.steps[-1].messages) == 1 + 2 * LOOKS
    assert estimate(provider.steps[-1]) > 2 * BUDGET


async def test_the_payload_limit_holds_even_without_a_strategy(client: Client) -> None:
    """A conversation of more than 1 MB could not be carried by continue-as-new."""
    provider = counting(looking)
    async with a_loop(client, provider, pages(15_000)) as loop:
        ran = await loop.run("the task", **RUN, context_strategy="none")
    assert compactions(ran) == []

    options = FakeTool("look").spec.options.model_copy(update={"max_result_bytes": 500_000})
    provider = counting(looking)
    async with a_loop(client, provider, pages(300_000, options=options)) as loop:
        ran = await loop.run("the task", **RUN, context_strategy="none")
    assert ran.result.termination.reason == "completed"
    assert {entry["strategy"] for entry in compactions(ran)} == {"sliding_window"}


async def test_a_provider_that_counts_twice_the_tokens_gets_half_the_messages(client: Client) -> None:
    """Before the first reply its count is unknown. After a few replies it is within the budget."""
    provider = counting(looking, factor=2.0)
    async with a_loop(client, provider, pages()) as loop:
        await loop.run("the task", **RUN)

    counted = [2 * estimate(request) for request in provider.steps]
    assert len(counted) == LOOKS + 1
    assert max(counted) <= BUDGET * 1.05
    assert max(counted) > BUDGET * 0.6


async def test_instructions_and_tools_count_against_the_budget(client: Client) -> None:
    provider = counting(looking)
    tool = pages(parameters={"type": "object", "description": "d" * 4_000})
    async with a_loop(client, provider, tool) as loop:
        await loop.run("the task", **RUN)

    assert max(estimate(request) for request in provider.steps) <= BUDGET
    assert max(estimated_message_tokens(request.messages) for request in provider.steps) <= BUDGET - 1_200


@pytest.mark.parametrize("strategy", ["sliding_window", "observation_masking", "anchored_summary"])
async def test_a_request_too_long_for_the_provider_is_halved_and_sent_again(
    client: Client, strategy: str, kept: Kept
) -> None:
    """The provider's window is smaller than the budget."""
    provider = counting(looking, window=1_800)
    ran = await run_with_context(client, provider, pages(), context_strategy=strategy, context_token_budget=10_000)

    assert (ran.result.output, ran.result.iterations) == ("done", LOOKS + 1)
    steps = [
        request for request in provider.refused if request.tool_choice == "auto"
    ]  # the request for a summary may be too long, too
    assert len(steps) >= 2
    assert len(compactions(ran)) == len(steps)
    again = [provider.seen[provider.seen.index(request) + 1 :] for request in steps]
    sent = [next(later for later in seen if later.tool_choice == "auto") for seen in again]
    for refused, shorter in zip(steps, sent, strict=True):
        assert shorter.messages[-1] == refused.messages[-1]
        assert estimate(shorter) <= estimate(refused) / 2 + 450, "the last group stays, whatever its size"
    for request in provider.steps:
        assert are_paired(request.messages)
        assert request.messages[0].text == "the task"


async def test_a_second_refusal_ends_the_run(client: Client) -> None:
    overflow = ModelError("ContextOverflow", "too long", retryable=False)
    provider = ScriptedModel([*(calls("look", arguments={"n": n}) for n in range(3)), overflow], repeats=True)
    async with a_loop(client, provider, pages()) as loop:
        ran = await loop.run("the task", **RUN)

    assert ran.result.termination.model_dump() == {"reason": "error", "detail": "ContextOverflow: too long"}
    assert len(provider.seen) == 5
    assert len(provider.seen[4].messages) < len(provider.seen[3].messages)


@pytest.mark.parametrize(
    ("turns", "strategy"),
    [
        pytest.param(0, "sliding_window", id="there is only the task"),
        pytest.param(1, "sliding_window", id="there is only the last group"),
        pytest.param(3, "none", id="nothing may be dropped"),
    ],
)
async def test_an_unchanged_request_is_not_sent_twice(client: Client, turns: int, strategy: str) -> None:
    overflow = ModelError("ContextOverflow", "too long", retryable=False)
    provider = ScriptedModel([*(calls("look", arguments={"n": n}) for n in range(turns)), overflow], repeats=True)
    async with a_loop(client, provider, pages()) as loop:
        ran = await loop.run("the task", **RUN, context_strategy=strategy)

    assert ran.result.termination.detail == "ContextOverflow: too long"
    assert len(provider.seen) == turns + 1
