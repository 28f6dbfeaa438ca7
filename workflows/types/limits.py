"""The limits of a run, each declared once: its bounds, its names and its texts.

A new limit needs a row in `LIMITS`, fields in the classes of this file, a field of `LoopConfig` (and of `GoalConfig`),
and a function in `decisions/limits.py` that returns what is spent.
"""

from typing import Annotated, Literal, NamedTuple, Self

from pydantic import Field

from orga.workflows.types.control import Sender, StopReason
from orga.workflows.types.record import CheckedInput, Record, replace_fields

IterationLimit = Annotated[int, Field(ge=1, le=1_000_000)]
TokenLimit = Annotated[int, Field(ge=1, le=10**12)]
CostLimit = Annotated[float, Field(gt=0)]
SecondsLimit = Annotated[float, Field(ge=0.001, le=31_536_000)]
ModelCallLimit = Annotated[int, Field(ge=1, le=10**9)]
ToolCallLimit = Annotated[int, Field(ge=0, le=10**9)]


class Limit(NamedTuple):
    key: str
    """Its key in `LoopConfig`, `BudgetExtension`, `Ceiling` and `Budgets`."""
    rest: str
    """The key of what is left of it, in `Budgets` and for policies."""
    noun: str
    help: str
    """Help of its option of `orga extend`."""
    reason: StopReason = "max_iterations"
    """The result's reason. Clients rely on the known reasons, so limits of calls end as `max_iterations`, too."""
    detail: str = "limit of {max} {noun}"
    """Format of the result's detail."""


LIMITS = (
    Limit("max_iterations", "iterations", "iterations", "Reasoning steps."),
    Limit("max_total_tokens", "tokens", "tokens", "Tokens of all model calls.", "max_tokens", "{used} of {max} tokens"),
    Limit("max_cost_usd", "cost_usd", "money", "US dollars.", "max_cost", "{used:.4f} of {max} USD"),
    Limit("timeout_s", "time_s", "time", "Seconds of the run's clock.", "timeout", "limit of {max:g} s"),
    Limit("max_model_calls", "model_calls", "model calls", "Model calls, including those of delegates."),
    Limit("max_tool_calls", "tool_calls", "tool calls", "Tool calls, including those of delegates."),
)


class BudgetExtension(CheckedInput):
    """The new limits, not amounts to add to the old ones. Null leaves a limit as it is."""

    max_iterations: IterationLimit | None = None
    max_total_tokens: TokenLimit | None = None
    max_cost_usd: CostLimit | None = None
    timeout_s: SecondsLimit | None = None
    max_model_calls: ModelCallLimit | None = None
    max_tool_calls: ToolCallLimit | None = None


class SentExtension(BudgetExtension):
    """Argument of the update `extend_budget`."""

    by: Sender = ""


class Budgets(Record):
    """The limits, and what is left of each. None: there is no limit."""

    iterations: int
    max_iterations: int
    tokens: int
    max_total_tokens: int
    cost_usd: float | None
    max_cost_usd: float | None
    time_s: float
    timeout_s: float
    model_calls: int | None = None
    max_model_calls: int | None = None
    tool_calls: int | None = None
    max_tool_calls: int | None = None


class Ceiling(CheckedInput):
    """The most that a run may do, whatever its agent's config allows. A delegation can only narrow it."""

    tools: tuple[str, ...] | None = None
    max_iterations: int | None = Field(default=None, ge=0)
    max_total_tokens: int | None = Field(default=None, ge=0)
    max_cost_usd: float | None = Field(default=None, ge=0)
    timeout_s: float | None = Field(default=None, ge=0)
    max_model_calls: int | None = Field(default=None, ge=0)
    max_tool_calls: int | None = Field(default=None, ge=0)
    max_delegation_depth: int | None = Field(default=None, ge=0)
    tier: Literal["local"] | None = None
    """The tier to which the delegating run, and therefore this one, is bound."""

    def with_tools(self, tools: tuple[str, ...]) -> Self:
        return replace_fields(self, {"tools": tools})


SLACK_S = 5
"""Seconds after the time limit until the server ends a model call. Rounding up adds at most one second."""

LAST_TRY_S = 3.0
"""Seconds. A retry of a model call that would come after the run's time limit begins this long before the limit."""

OUT_OF_TIME = "out of time"
"""Detail of the failure of a model call that could be retried if the run had more time."""
