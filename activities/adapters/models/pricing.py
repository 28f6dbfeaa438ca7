"""Calculates the cost of a model call by a price of the config, the provider's bill, or the list in genai-prices.

The list is part of the installed package, and also states the context windows of models.
"""

from collections.abc import Callable
from dataclasses import dataclass

from orga.activities.ports import ModelProvider, ModelRequest
from orga.workflows.types.messages import Reply
from orga.workflows.types.models.providers import PROVIDERS, Provider
from orga.workflows.types.models.usage import ModelPrice, Usage

_ASSUMED_PRICE = ModelPrice(input=15, output=75)
"""The highest price of any model. With it, a dollar limit works without bill, list price and token counts."""

_MAX_BILLED_USD = 1e6
"""US dollars for one call. More is nonsense."""


def is_priced(provider: str, model: str) -> bool:
    """Return whether the cost of a provider's model is known without a price in the config."""
    if provider in PROVIDERS and (PROVIDERS[provider].bills_replies or not PROVIDERS[provider].is_remote):
        return True
    return cost_usd(provider, model, Usage(input_tokens=1, output_tokens=1)) is not None


@dataclass(frozen=True)
class PricedProvider:
    """A provider with prices from the config."""

    provider: ModelProvider
    price: ModelPrice

    async def complete(self, request: ModelRequest, on_text: Callable[[str], None]) -> Reply:
        """Return the provider's reply with its price."""
        reply = await self.provider.complete(request, on_text)
        return reply.with_cost(self.price.call_cost_usd(reply.usage))


def reply_cost_usd(
    provider: str, model: str, usage: Usage, *, billed: object = None, cache_write_tokens: int = 0, hour_tokens: int = 0
) -> float | None:
    """Return the bill that the provider reports, or else the list price of the usage."""
    bills = _provider(provider).bills_replies
    if bills and isinstance(billed, (int, float)) and 0 <= billed < _MAX_BILLED_USD:
        return float(billed)
    cost = cost_usd(provider, model, usage, cache_write_tokens=cache_write_tokens, hour_tokens=hour_tokens)
    if not bills:
        return cost
    return _ASSUMED_PRICE.call_cost_usd(usage) if cost is None and usage.estimated else cost


def cost_usd(
    provider: str, model: str, usage: Usage, *, cache_write_tokens: int = 0, hour_tokens: int = 0
) -> float | None:
    """Return the cost in US dollars, or None if no price is known.

    Args:
        hour_tokens: The part of `cache_write_tokens` that the cache keeps for an hour, which costs more.
    """
    listed = _provider(provider)
    if not listed.has_list_prices:
        return None
    import genai_prices  # imported here because its list is large and many processes never need it

    tokens = genai_prices.Usage(
        input_tokens=usage.input_tokens,
        cache_read_tokens=usage.cached_input_tokens or None,
        cache_write_tokens=cache_write_tokens or None,
        cache_write_1h_tokens=hour_tokens or None,
        output_tokens=usage.output_tokens,
    )
    try:
        return float(genai_prices.calc_price(tokens, model, provider_id=listed.price_list or provider).total_price)
    except Exception:  # an unknown model raises LookupError, and no other error may lose the reply
        return None


def listed_window(provider: str, model: str) -> int | None:
    """Return a model's context window in tokens, or None if the list of prices does not state it."""
    listed = _provider(provider)
    if not listed.has_list_prices:
        return None
    import genai_prices

    try:
        used = genai_prices.Usage(input_tokens=1)
        return genai_prices.calc_price(used, model, provider_id=listed.price_list or provider).model.context_window
    except LookupError:
        return None


def _provider(name: str) -> Provider:
    return PROVIDERS.get(name) or Provider(name)
