"""Costs come from the price list that is installed, or are not known."""

import pytest

from orga.activities.adapters.models.pricing import cost_usd
from orga.workflows.types.usage import Usage

USAGE = Usage(input_tokens=1_000_000, output_tokens=100_000)


@pytest.mark.parametrize(
    ("provider", "model", "expected"),
    [
        pytest.param("openai", "gpt-4o", 3.5, id="OpenAI"),
        pytest.param("anthropic", "claude-sonnet-4-20250514", 4.5, id="Anthropic"),
        pytest.param("openrouter", "anthropic/claude-sonnet-4", 4.5, id="OpenRouter"),
        pytest.param("openrouter", "nobody/nothing", None, id="an unknown model"),
        pytest.param("ollama", "gpt-4o", None, id="a known name somewhere else"),
        pytest.param("openai-compatible", "gpt-4o", None, id="a known name on another's server"),
        pytest.param("openai", "", None, id="no model"),
    ],
)
def test_cost(provider: str, model: str, expected: float | None) -> None:
    assert cost_usd(provider, model, USAGE) == pytest.approx(expected)


def test_reading_a_cache_is_cheaper_and_writing_one_dearer() -> None:
    def cost(cached: int, written: int) -> float:
        usage = Usage(input_tokens=10_000, cached_input_tokens=cached)
        return cost_usd("anthropic", "claude-sonnet-4-20250514", usage, cache_write_tokens=written) or 0.0

    assert cost(9_000, 0) < cost(0, 0) < cost(0, 9_000)


def test_counts_that_contradict_themselves_have_no_price() -> None:
    assert cost_usd("openai", "gpt-4o", Usage(input_tokens=1, cached_input_tokens=50)) is None
