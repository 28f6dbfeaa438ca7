"""Usage: tokens, calls and cost of a run, and the prices of models."""

from collections.abc import Set
from typing import Any, Self, TypedDict, Unpack

from pydantic import Field, SerializerFunctionWrapHandler, model_serializer

from orga.workflows.types.record import CheckedInput, Record, replace_differing_fields, replace_fields


class UsageChanges(TypedDict, total=False):
    input_tokens: int
    output_tokens: int
    cached_input_tokens: int
    thinking_tokens: int
    estimated: bool


class Usage(Record):
    """Tokens of one model call, as the provider counts them. Cached input is part of `input_tokens`."""

    input_tokens: int = 0
    output_tokens: int = 0
    cached_input_tokens: int = 0
    thinking_tokens: int = 0
    """Part of `output_tokens`. Written only if not 0."""
    estimated: bool = False
    """True if some numbers are estimates, because the provider reported none. Written only if true."""

    def with_differences(self, **changes: Unpack[UsageChanges]) -> Self:
        return replace_differing_fields(self, changes)

    @model_serializer(mode="wrap")
    def _omit_zeros(self, serialize: SerializerFunctionWrapHandler) -> dict[str, Any]:
        return _without_zeros(serialize(self), {"thinking_tokens", "estimated"})


class UsageTotals(Record):
    """Tokens, calls and cost of a run so far. `cost_usd` stays None until a priced call."""

    input_tokens: int = 0
    output_tokens: int = 0
    cached_input_tokens: int = 0
    total_tokens: int = 0
    model_calls: int = 0
    cost_usd: float | None = None
    estimated_calls: int = 0
    """Model calls whose tokens and cost are estimates, because the provider reported none. Written only if not 0."""
    thinking_tokens: int = 0
    """Part of `output_tokens`. Written only if not 0."""

    def plus(self, usage: Usage, cost_usd: float | None) -> "UsageTotals":
        """Return the totals with one more model call."""
        call = UsageTotals(
            input_tokens=usage.input_tokens,
            output_tokens=usage.output_tokens,
            cached_input_tokens=usage.cached_input_tokens,
            total_tokens=usage.input_tokens + usage.output_tokens,
            model_calls=1,
            cost_usd=cost_usd,
            estimated_calls=int(usage.estimated),
            thinking_tokens=usage.thinking_tokens,
        )
        return self.plus_totals(call)

    def plus_totals(self, other: "UsageTotals") -> "UsageTotals":
        costs = [cost for cost in (self.cost_usd, other.cost_usd) if cost is not None]
        return UsageTotals(
            input_tokens=self.input_tokens + other.input_tokens,
            output_tokens=self.output_tokens + other.output_tokens,
            cached_input_tokens=self.cached_input_tokens + other.cached_input_tokens,
            total_tokens=self.total_tokens + other.total_tokens,
            model_calls=self.model_calls + other.model_calls,
            cost_usd=sum(costs) if costs else None,
            estimated_calls=self.estimated_calls + other.estimated_calls,
            thinking_tokens=self.thinking_tokens + other.thinking_tokens,
        )

    @model_serializer(mode="wrap")
    def _omit_zeros(self, serialize: SerializerFunctionWrapHandler) -> dict[str, Any]:
        return _without_zeros(serialize(self), {"thinking_tokens", "estimated_calls"})


def _without_zeros(fields: dict[str, Any], names: Set[str]) -> dict[str, Any]:
    return {key: value for key, value in fields.items() if value or key not in names}


_ALWAYS_WRITTEN = frozenset({"proposed", "run", "denied", "failed"})


class MoreCalls(TypedDict, total=False):
    proposed: int
    run: int
    denied: int
    failed: int
    invalid: int
    not_run: int
    fallbacks: int
    delegated: int
    in_sagas: int
    requeued: int


class ToolCallCounts(Record):
    """Tool calls of a run so far. `proposed` = `run` + `denied` + `invalid` + `not_run`.

    Fields are always written unless their note says otherwise.
    """

    proposed: int = 0
    """Calls that the model, lookups before its first step, and recoveries proposed."""
    run: int = 0
    denied: int = 0
    """Denials by policy or by a person, and nothing else."""
    failed: int = 0
    """Failed calls among those that were run, requeued ones included. A call that a recovery answered has not
    failed.
    """
    invalid: int = 0
    """Unknown tools and arguments that do not fit. Written only if not 0."""
    not_run: int = 0
    """Allowed but not begun: over budget, stopped, interrupted or rejected. Written only if not 0."""
    fallbacks: int = 0
    """Alternatives to calls that failed. They are part of `proposed`. Written only if not 0."""
    delegated: int = 0
    """Calls of delegates, and of their delegates. Written only if not 0."""
    in_sagas: int = 0
    """Steps and compensations that were run, in addition to the `saga` calls themselves. Written only if not 0."""
    requeued: int = 0
    """Dead letters that were sent again, in addition to their original calls. Written only if not 0."""

    def plus(self, **more: Unpack[MoreCalls]) -> Self:
        return replace_fields(self, {name: getattr(self, name) + count for name, count in more.items()})

    def plus_counts(self, other: "ToolCallCounts") -> Self:
        return self.plus(**{name: getattr(other, name) for name in ToolCallCounts.model_fields})

    @property
    def spent(self) -> int:
        """The number that `max_tool_calls` limits."""
        return self.run + self.delegated + self.in_sagas + self.requeued

    @model_serializer(mode="wrap")
    def _omit_zeros(self, serialize: SerializerFunctionWrapHandler) -> dict[str, Any]:
        fields: dict[str, Any] = serialize(self)
        return {key: value for key, value in fields.items() if value or key in _ALWAYS_WRITTEN}


_MILLION = 1_000_000


class ModelPrice(CheckedInput):
    """`[models.prices."provider:model"]`: US dollars for a million tokens."""

    input: float = Field(ge=0, le=1_000_000)
    """USD for a million input tokens."""
    output: float = Field(ge=0, le=1_000_000)
    """USD for a million output tokens."""
    cached_input: float | None = Field(default=None, ge=0, le=1_000_000)
    """USD for a million tokens of input in the provider's cache. Null: the price of other input."""

    def call_cost_usd(self, usage: Usage) -> float:
        cached = min(usage.cached_input_tokens, usage.input_tokens)
        cached_price = self.input if self.cached_input is None else self.cached_input
        fresh = usage.input_tokens - cached
        return (fresh * self.input + cached * cached_price + usage.output_tokens * self.output) / _MILLION
