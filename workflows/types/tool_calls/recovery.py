"""What became of a call, and what is done where it failed."""

from datetime import datetime
from typing import Literal, Self

from pydantic import Field, model_validator

from orga.workflows.types.messages import Message, ToolCall
from orga.workflows.types.record import CheckedInput, Record, replace_fields

OutcomeStatus = Literal["ok", "failed", "denied", "invalid", "cancelled", "not_run"]
"""`cancelled`: stopped while it ran; `not_run`: never started (the run was aborted or out of time before)."""


class Outcome(Record):
    """The outcome of one call. `text` is what the model is told, marker included."""

    call: ToolCall
    status: OutcomeStatus
    text: str
    error: str = ""
    """The bare failure, of a call that failed."""
    result: str | None = None
    """Id of the tool activity that holds the text, when it succeeded."""
    may_have_acted: bool = False
    """It did not succeed, and may have had its effect all the same."""
    goes_on: bool = False
    """It was cut off, and what it began may still act."""
    ours: tuple[int, int] | None = None
    """Characters at the beginning and the end of the text that are our own words; None is what the status says."""
    by: str = ""
    """The tool that was called in its place, and whose words are in the text."""

    @property
    def was_run(self) -> bool:
        """Whether the call was started."""
        return self.status in {"ok", "failed", "cancelled"}

    @property
    def own_words(self) -> tuple[int, int]:
        """How much of the text is ours: nothing of a result, the marker of a failure, all of a call that never ran."""
        if self.ours is not None or self.status == "ok":
            return self.ours or (0, 0)
        return (len(ERROR_MARKER), 0) if self.status == "failed" else (len(self.text), 0)

    def with_words(self, before: str = "", after: str = "") -> "Outcome":
        """Return the outcome with our own words around its text, which is no activity's result any more."""
        head, tail = self.own_words
        ours = (head + len(before), tail + len(after))
        return replace_fields(self, {"text": f"{before}{self.text}{after}", "ours": ours, "result": None})

    def with_data(self, data: str) -> Self:
        """Return the outcome with other words of the tool between our own."""
        head, tail = self.own_words
        end = len(self.text) - tail
        return replace_fields(self, {"text": self.text[:head] + data + self.text[end:], "ours": (head, tail)})

    def with_call(self, call: ToolCall) -> Self:
        """Return the outcome as that of another call."""
        return replace_fields(self, {"call": call})

    def with_by(self, by: str) -> Self:
        """Return the outcome with the tool that was called in its place."""
        return replace_fields(self, {"by": by})

    def with_possible_effect(self, may_have_acted: bool) -> Self:
        """Return the outcome with whether it may have had its effect all the same."""
        return replace_fields(self, {"may_have_acted": may_have_acted})

    def with_going_on(self, goes_on: bool) -> Self:
        """Return the outcome with whether what the call began may still act."""
        return replace_fields(self, {"goes_on": goes_on})

    def without_result(self) -> Self:
        """Return the outcome whose text no activity under the call's own id holds."""
        return replace_fields(self, {"result": None})

    def message(self) -> Message:
        """Return the tool message that answers the call."""
        return tool_message(self.call, self.text, is_error=self.status != "ok", ours=self.own_words)


ERROR_MARKER = "[Error] "
"""Stands before what a call that failed says."""


def tool_message(call: ToolCall, text: str, *, is_error: bool, ours: tuple[int, int] = (0, 0)) -> Message:
    """Return the message that answers `call`."""
    return Message.of_result(text, call.call_id, call.name, is_error=is_error, ours=ours)


RecoveryStrategy = Literal["retry", "fallback", "cached_result", "llm_recovery", "escalate", "dead_letter"]


class Recovery(CheckedInput):
    """Every strategy starts with the attempts; what it does after the last one, its name says. Per tool or for all."""

    strategy: RecoveryStrategy = "retry"
    """`retry`: nothing more, the model gets the error."""
    max_attempts: int = Field(default=2, ge=1, le=100)
    """Of one call; an irreversible tool has one."""
    base_delay_ms: int = Field(default=500, ge=1, le=3_600_000)
    """Before the second attempt; each later pause is twice as long."""
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


class StepIteration(CheckedInput):
    """`step_iteration` of the config. A step is a tool with its arguments; an attempt is a failed call of it."""

    enabled: bool = True
    """Whether failed steps are compared at all."""
    max_reattempts: int = Field(default=2, ge=1, le=100)
    """Failed calls of one step at which it is stopped (`>=`)."""
    similarity_threshold: float = Field(default=0.85, ge=0, le=1)
    """A failure at least this much like the one before it stops the step at once: trying again changes nothing."""
    on_limit_reached: OnLimit = "skip_step"
    """What happens to a step that gets nowhere."""


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


class GoodResult(Record):
    """The last good result of a call, kept for `cached_result`."""

    at: datetime
    text: str
