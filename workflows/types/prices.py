"""What a model costs, where whoever runs it says so."""

from pydantic import Field

from workflows.types.record import Border
from workflows.types.usage import Usage

_MILLION = 1_000_000


class ModelPrice(Border):
    """`[models.prices."provider:model"]`: US dollars for a million tokens."""

    input: float = Field(ge=0, le=1_000_000)
    output: float = Field(ge=0, le=1_000_000)
    cached_input: float | None = Field(default=None, ge=0, le=1_000_000)
    """Of input that the provider had in its cache; null: as other input."""

    def cost_usd(self, usage: Usage) -> float:
        """Return what one call cost."""
        cached = min(usage.cached_input_tokens, usage.input_tokens)
        cached_price = self.input if self.cached_input is None else self.cached_input
        fresh = usage.input_tokens - cached
        return (fresh * self.input + cached * cached_price + usage.output_tokens * self.output) / _MILLION
