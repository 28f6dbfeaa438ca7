"""What a run uses, what that costs, and how a live run is given more."""

from typing import Any, Self, TypedDict, Unpack

from pydantic import Field, SerializerFunctionWrapHandler, model_serializer

from orga.workflows.types.record import CheckedInput, Record, replace_differing_fields, replace_fields


class UsageChanges(TypedDict, total=False):
    """What `Usage.with_differences` takes: its fields."""

    input_tokens: int
    output_tokens: int
    cached_input_tokens: int
    estimated: bool


class Usage(Record):
    """Tokens of one model call, as the provider counts them; cached input is part of `input_tokens`."""

    input_tokens: int = 0
    output_tokens: int = 0
    cached_input_tokens: int = 0
    estimated: bool = False
    """Whether some of it was estimated, since the provider reported nothing. Written only where it was."""

    def with_differences(self, **changes: Unpack[UsageChanges]) -> Self:
        """Return the usage with what differs set."""
        return replace_differing_fields(self, changes)

    @model_serializer(mode="wrap")
    def _without_a_mark_that_says_nothing(self, written: SerializerFunctionWrapHandler) -> dict[str, Any]:
        return _without(written(self), "estimated", self.estimated)


class UsageTotals(Record):
    """Tokens, calls and cost of a run so far. `cost_usd` stays None until a priced call."""

    input_tokens: int = 0
    output_tokens: int = 0
    cached_input_tokens: int = 0
    total_tokens: int = 0
    model_calls: int = 0
    cost_usd: float | None = None
    estimated_calls: int = 0
    """Model calls whose tokens and cost are estimates, since the provider reported none; written only where any are."""

    def plus(self, usage: Usage, cost_usd: float | None) -> "UsageTotals":
        """Return the totals after one more model call."""
        return UsageTotals(
            input_tokens=self.input_tokens + usage.input_tokens,
            output_tokens=self.output_tokens + usage.output_tokens,
            cached_input_tokens=self.cached_input_tokens + usage.cached_input_tokens,
            total_tokens=self.total_tokens + usage.input_tokens + usage.output_tokens,
            model_calls=self.model_calls + 1,
            cost_usd=self.cost_usd if cost_usd is None else (self.cost_usd or 0.0) + cost_usd,
            estimated_calls=self.estimated_calls + usage.estimated,
        )

    def plus_totals(self, other: "UsageTotals") -> "UsageTotals":
        """Return the totals together with those of a delegated run."""
        costs = [cost for cost in (self.cost_usd, other.cost_usd) if cost is not None]
        return UsageTotals(
            input_tokens=self.input_tokens + other.input_tokens,
            output_tokens=self.output_tokens + other.output_tokens,
            cached_input_tokens=self.cached_input_tokens + other.cached_input_tokens,
            total_tokens=self.total_tokens + other.total_tokens,
            model_calls=self.model_calls + other.model_calls,
            cost_usd=sum(costs) if costs else None,
            estimated_calls=self.estimated_calls + other.estimated_calls,
        )

    @model_serializer(mode="wrap")
    def _without_estimates_that_there_are_not(self, written: SerializerFunctionWrapHandler) -> dict[str, Any]:
        return _without(written(self), "estimated_calls", bool(self.estimated_calls))


def _without(fields: dict[str, Any], name: str, is_written: bool) -> dict[str, Any]:
    return fields if is_written else {key: value for key, value in fields.items() if key != name}


_ALWAYS = frozenset({"proposed", "run", "denied", "failed"})


class MoreCalls(TypedDict, total=False):
    """What `ToolCallCounts.plus` takes: its fields."""

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

    Those without a word on when they are written are always there, others only where they are not 0.
    """

    proposed: int = 0
    """By the model, by lookups before its first step, and by recoveries."""
    run: int = 0
    denied: int = 0
    """By policy, or by a person: nothing else."""
    failed: int = 0
    """Of those that were run, requeued ones too; one that a recovery answered has not failed."""
    invalid: int = 0
    """Unknown tools, arguments that do not fit; written only where there are any."""
    not_run: int = 0
    """Allowed, and not begun: over budget, stopped, interrupted, turned down; written only where there are any."""
    fallbacks: int = 0
    """Alternatives to calls that failed, a part of `proposed`; written only where there are any."""
    delegated: int = 0
    """Run by delegates, and by theirs; written only where there are any."""
    in_sagas: int = 0
    """Steps and compensations that were run, beside the `saga` calls themselves; written only where there are any."""
    requeued: int = 0
    """Dead letters that were sent again, beside the calls that they had been; written only where there are any."""

    def plus(self, **more: Unpack[MoreCalls]) -> Self:
        """Return the counts with so many more."""
        return replace_fields(self, {name: getattr(self, name) + count for name, count in more.items()})

    def plus_counts(self, other: "ToolCallCounts") -> Self:
        """Return both together."""
        return self.plus(**{name: getattr(other, name) for name in ToolCallCounts.model_fields})

    @property
    def spent(self) -> int:
        """What counts against `max_tool_calls`."""
        return self.run + self.delegated + self.in_sagas + self.requeued

    @model_serializer(mode="wrap")
    def _without_zeros_that_are_rare(self, written: SerializerFunctionWrapHandler) -> dict[str, Any]:
        fields: dict[str, Any] = written(self)
        return {key: value for key, value in fields.items() if value or key in _ALWAYS}


_MILLION = 1_000_000


class ModelPrice(CheckedInput):
    """`[models.prices."provider:model"]`: US dollars for a million tokens."""

    input: float = Field(ge=0, le=1_000_000)
    """USD for a million tokens that are sent."""
    output: float = Field(ge=0, le=1_000_000)
    """USD for a million tokens that come back."""
    cached_input: float | None = Field(default=None, ge=0, le=1_000_000)
    """Of input that the provider had in its cache; null: as other input."""

    def cost_usd(self, usage: Usage) -> float:
        """Return what one call cost."""
        cached = min(usage.cached_input_tokens, usage.input_tokens)
        cached_price = self.input if self.cached_input is None else self.cached_input
        fresh = usage.input_tokens - cached
        return (fresh * self.input + cached * cached_price + usage.output_tokens * self.output) / _MILLION


class BudgetExtension(CheckedInput):
    """The new limits, not what is added to the old ones. Null leaves a limit as it is."""

    max_iterations: int | None = Field(default=None, ge=1, le=1_000_000)
    max_total_tokens: int | None = Field(default=None, ge=1, le=10**12)
    max_cost_usd: float | None = Field(default=None, gt=0)
    timeout_s: float | None = Field(default=None, ge=0.001, le=31_536_000)
    max_model_calls: int | None = Field(default=None, ge=1, le=10**9)
    max_tool_calls: int | None = Field(default=None, ge=0, le=10**9)
