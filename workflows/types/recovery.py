"""What happens once the attempts of a call are used up, when it fails again and again, and when it is given up."""

from datetime import datetime
from typing import Literal, Self

from pydantic import Field, model_validator

from orga.workflows.types.messages import ToolCall
from orga.workflows.types.record import Border, Record, replace_fields

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


OnLimit = Literal["skip_step", "abort_task", "escalate"]
"""`skip_step`: the call is not run again and the model is told; `abort_task`: the run ends as `error`; `escalate`: a
person decides."""


class StepIteration(Border):
    """`step_iteration` of the config. A step is a tool with its arguments; an attempt is a failed call of it."""

    enabled: bool = True
    max_reattempts: int = Field(default=2, ge=1, le=100)
    """Failed calls of one step at which it is stopped (`>=`)."""
    similarity_threshold: float = Field(default=0.85, ge=0, le=1)
    """A failure at least this much like the one before it stops the step at once: trying again changes nothing."""
    on_limit_reached: OnLimit = "skip_step"


class Step(Record):
    """What is known of one step that has failed."""

    tool: str
    attempts: int = 0
    last_error: str = ""
    stopped: str = ""
    """Why it is not run again; empty while it may be."""

    def with_stop(self, why: str) -> Self:
        """Return the step, which is not run again."""
        return replace_fields(self, {"stopped": why})

    def with_texts(self, last_error: str, stopped: str) -> Self:
        """Return the step with other words on it."""
        return replace_fields(self, {"last_error": last_error, "stopped": stopped})

    def with_last_error(self, error: str) -> Self:
        """Return the step with another wording of its last error."""
        return replace_fields(self, {"last_error": error})


class DeadLetter(Record):
    """A call whose every attempt failed."""

    letter_id: str
    """`<iteration>.<index>` of the call."""
    call: ToolCall
    key: str
    """Its idempotency key, which a requeued call keeps unless policy changes its arguments."""
    error: str
    at: datetime
    requeued: bool = False

    def with_requeued(self, requeued: bool) -> Self:
        """Return the letter, to be sent again or to wait."""
        return replace_fields(self, {"requeued": requeued})
