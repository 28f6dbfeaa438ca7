"""What happens once the attempts of a tool call are used up."""

from typing import Literal

from pydantic import Field, model_validator

from workflows.types.record import Border

RecoveryStrategy = Literal["retry", "fallback", "cached_result", "llm_recovery", "escalate", "dead_letter"]


class Recovery(Border):
    """Every strategy starts with the attempts; what it does after the last one, its name says. Per tool or for all."""

    strategy: RecoveryStrategy = "retry"
    """`retry`: nothing more, the model gets the error."""
    max_attempts: int = Field(default=2, ge=1, le=100)
    base_delay_ms: int = Field(default=500, ge=1, le=3_600_000)
    alternatives: tuple[str, ...] = ()
    """`fallback`: tools that are called instead, in order, with the same arguments, each through the gate."""
    max_staleness_s: float = Field(default=300.0, gt=0, le=31_536_000)
    """`cached_result`: how old the last good result of the same call may be."""
    max_recovery_attempts: int = Field(default=2, ge=1, le=100)
    """`llm_recovery`: failures in a row of one tool that the model may answer with another try."""
    queue: str = Field(default="default", min_length=1, max_length=100)
    """`escalate`: where people look for it (`orga inbox --queue`)."""
    context_snapshot: bool = True
    """`escalate`: show the person the arguments and the latest messages, too."""

    @model_validator(mode="after")
    def _has_what_it_needs(self) -> "Recovery":
        if self.strategy == "fallback" and not self.alternatives:
            raise ValueError('strategy "fallback" needs alternatives: name the tools to call instead')
        return self
