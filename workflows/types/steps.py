"""Steps that get nowhere: the same call failing again and again."""

from typing import Literal

from pydantic import Field

from workflows.types.record import Border, Record

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
