"""`extend_budget`: limits of a live run, raised."""

from pydantic import Field

from workflows.types.record import Border


class BudgetExtension(Border):
    """The new limits, not what is added to the old ones. Null leaves a limit as it is."""

    max_iterations: int | None = Field(default=None, ge=1, le=1_000_000)
    max_total_tokens: int | None = Field(default=None, ge=1, le=10**12)
    max_cost_usd: float | None = Field(default=None, gt=0)
    timeout_s: float | None = Field(default=None, ge=0.001, le=31_536_000)
    max_model_calls: int | None = Field(default=None, ge=1, le=10**9)
    max_tool_calls: int | None = Field(default=None, ge=0, le=10**9)
