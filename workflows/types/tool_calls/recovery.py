"""The outcome of a call, and the handling of failed calls: recovery, repeated calls, dead letters."""

from datetime import datetime
from typing import Literal, Self

from pydantic import Field, model_validator

from orga.workflows.types.messages import Message, ToolCall
from orga.workflows.types.parts import NO_OWN_TEXT, MediaPart, OwnText
from orga.workflows.types.record import CheckedInput, Record, replace_fields

OutcomeStatus = Literal["ok", "failed", "denied", "invalid", "cancelled", "not_run"]
"""`cancelled`: stopped while it ran. `not_run`: allowed but never started, for example after an abort."""


class Outcome(Record):
    """The outcome of one call. The model reads `text`, which may begin with a marker."""

    call: ToolCall
    status: OutcomeStatus
    text: str
    error: str = ""
    """The failure of a failed call, without a marker."""
    result: str | None = None
    """Id of the tool activity that holds the text of a successful call."""
    may_have_acted: bool = False
    """True if the call did not succeed but may have had its effect."""
    goes_on: bool = False
    """True if the call was cut off and the work that it began may still act."""
    ours: OwnText | None = None
    """The loop's own part of the text. None: `own_text` decides."""
    by: str = ""
    """The tool that was called instead and returned the text."""
    media: tuple[MediaPart, ...] = ()

    @property
    def was_run(self) -> bool:
        return self.status in {"ok", "failed", "cancelled"}

    @property
    def own_text(self) -> OwnText:
        """Our own part of the text: none of a result, the marker of a failure, all for a call that never ran."""
        if self.ours is not None:
            return self.ours
        if self.status == "ok":
            return NO_OWN_TEXT
        return OwnText(len(ERROR_MARKER) if self.status == "failed" else len(self.text))

    @property
    def tool_text(self) -> str:
        """The text without our own part."""
        return self.own_text.split(self.text)[1]

    def with_own_text(self, before: str = "", after: str = "") -> "Outcome":
        """Return the outcome with our own text around it. Its text is then no longer the result of an activity."""
        ours = OwnText(self.own_text.before + len(before), self.own_text.after + len(after))
        return replace_fields(self, {"text": f"{before}{self.text}{after}", "ours": ours, "result": None})

    def with_tool_text(self, text: str) -> Self:
        """Return the outcome with another text of the tool. Our own text around it stays."""
        before, _, after = self.own_text.split(self.text)
        return replace_fields(self, {"text": f"{before}{text}{after}", "ours": self.own_text})

    def with_call(self, call: ToolCall) -> Self:
        return replace_fields(self, {"call": call})

    def with_substitute(self, by: str) -> Self:
        return replace_fields(self, {"by": by})

    def with_possible_effect(self, may_have_acted: bool) -> Self:
        return replace_fields(self, {"may_have_acted": may_have_acted})

    def with_going_on(self, goes_on: bool) -> Self:
        return replace_fields(self, {"goes_on": goes_on})

    def with_media(self, media: tuple[MediaPart, ...]) -> Self:
        return replace_fields(self, {"media": media}) if media else self

    def without_result(self) -> Self:
        """Return the outcome without a result id, because no activity under the call's id returned its text."""
        return replace_fields(self, {"result": None})

    def message(self) -> Message:
        is_error = self.status != "ok"
        return tool_message(self.call, self.text, is_error=is_error, ours=self.own_text).with_media(self.media)


ERROR_MARKER = "[Error] "
"""Begins the text of a failed call."""


def tool_message(call: ToolCall, text: str, *, is_error: bool, ours: OwnText = NO_OWN_TEXT) -> Message:
    return Message.of_result(text, call.call_id, call.name, is_error=is_error, ours=ours)


RecoveryStrategy = Literal["retry", "fallback", "cached_result", "llm_recovery", "escalate", "dead_letter"]


class Recovery(CheckedInput):
    """Handling of failed calls, of one tool or of all. Every strategy begins with repeated attempts. Its name says
    what follows them.
    """

    strategy: RecoveryStrategy = "retry"
    """`retry`: nothing follows the attempts, and the model gets the error."""
    max_attempts: int = Field(default=2, ge=1, le=100)
    """Attempts of one call. An irreversible tool has one."""
    base_delay_ms: int = Field(default=500, ge=1, le=3_600_000)
    """Milliseconds before the second attempt. Each later delay is twice as long."""
    alternatives: tuple[str, ...] = ()
    """`fallback`: tools that are called instead, in order, with the same arguments, each through the gate."""
    max_staleness_s: float = Field(default=300.0, gt=0, le=31_536_000)
    """`cached_result`: the largest age of the last good result of the same call, in seconds."""
    max_recovery_attempts: int = Field(default=2, ge=1, le=100)
    """`llm_recovery`: the number of failures in a row of one tool after which the model may still try again."""
    queue: str = Field(default="default", min_length=1, max_length=100)
    """`escalate`: the queue where people find the question (`orga inbox --queue`)."""
    context_snapshot: bool = True
    """`escalate`: also show the person the arguments and the latest messages."""

    @model_validator(mode="after")
    def _has_what_it_needs(self) -> "Recovery":
        if self.strategy == "fallback" and not self.alternatives:
            raise ValueError('strategy "fallback" needs alternatives: name the tools to call instead')
        return self


OnLimit = Literal["skip_step", "abort_task", "escalate"]
"""`skip_step`: the call is not run again and the model learns why. `abort_task`: the run ends as `error`. `escalate`: a
person decides.
"""


class StepIteration(CheckedInput):
    """`step_iteration` of the config. A step is a tool with its arguments, and an attempt is a failed call of it."""

    enabled: bool = True
    """True if failed steps are compared at all."""
    max_reattempts: int = Field(default=2, ge=1, le=100)
    """A step is stopped at this number of failed calls."""
    similarity_threshold: float = Field(default=0.85, ge=0, le=1)
    """A failure at least this similar to the previous one stops the step, because another try would change nothing."""
    on_limit_reached: OnLimit = "skip_step"
    """The consequence of a stopped step."""


class RepeatedCall(Record):
    """A tool with its arguments, which has failed."""

    tool: str
    attempts: int = 0
    last_error: str = ""
    stopped: str = ""
    """The reason why the call is not run again. Empty if it may run again."""

    def with_stop(self, why: str) -> Self:
        return replace_fields(self, {"stopped": why})

    def with_texts(self, last_error: str, stopped: str) -> Self:
        return replace_fields(self, {"last_error": last_error, "stopped": stopped})


class DeadLetter(Record):
    """A call whose every attempt failed."""

    letter_id: str
    """`<iteration>.<index>` of the call."""
    call: ToolCall
    key: str
    """Its idempotency key. A requeued call keeps it unless policy changes its arguments."""
    error: str
    at: datetime
    requeued: bool = False

    def with_requeued(self, requeued: bool) -> Self:
        return replace_fields(self, {"requeued": requeued})


class GoodResult(Record):
    """The last good result of a call, kept for `cached_result`."""

    at: datetime
    text: str

    def age_s(self, now: datetime) -> float:
        return (now - self.at).total_seconds()
