"""What a model call cost, from the price list that genai-prices ships; nothing is fetched."""

from genai_prices import Usage as PricedUsage
from genai_prices import calc_price

from workflows.types.usage import Usage

PRICED_PROVIDERS = frozenset({"openrouter", "openai", "anthropic"})
"""Elsewhere a known model name says nothing about the price."""


def cost_usd(provider: str, model: str, usage: Usage, *, cache_write_tokens: int = 0) -> float | None:
    """Return the cost in US dollars, or None when no price is known."""
    if provider not in PRICED_PROVIDERS:
        return None
    tokens = PricedUsage(
        input_tokens=usage.input_tokens,
        cache_read_tokens=usage.cached_input_tokens or None,
        cache_write_tokens=cache_write_tokens or None,
        output_tokens=usage.output_tokens,
    )
    try:
        return float(calc_price(tokens, model, provider_id=provider).total_price)
    except Exception:  # an unknown model is a LookupError; whatever else, a reply is worth more than its price
        return None
