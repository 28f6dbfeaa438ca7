"""What became of the calls of one reply: one outcome for each, in call order."""

from typing import Any, Literal, Self

from orga.workflows.types.messages import Message, ToolCall
from orga.workflows.types.record import Record, replace_fields

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
    ours: tuple[int, int] | None = None
    """Characters at the beginning and the end of the text that are our own words; None is what the status says."""
    by: str = ""
    """The tool that answered in place of the one that was called."""

    @property
    def was_run(self) -> bool:
        """Whether the call was started."""
        return self.status in {"ok", "failed", "cancelled"}

    @property
    def own_words(self) -> tuple[int, int]:
        """How much of the text is ours: nothing of a result, the marker of a failure, all of a call that never ran."""
        if self.ours is not None or self.status == "ok":
            return self.ours or (0, 0)
        return (len(FAILED), 0) if self.status == "failed" else (len(self.text), 0)

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

    def with_possible_effect(self, may_have_acted: bool) -> Self:
        """Return the outcome with whether it may have had its effect all the same."""
        return replace_fields(self, {"may_have_acted": may_have_acted})

    def without_result(self) -> Self:
        """Return the outcome whose text no activity under the call's own id holds."""
        return replace_fields(self, {"result": None})

    def message(self) -> Message:
        """Return the tool message that answers the call."""
        return tool_message(self.call, self.text, is_error=self.status != "ok", ours=self.own_words)


FAILED = "[Error] "
"""Stands before what a call that failed says."""


def tool_message(call: ToolCall, text: str, *, is_error: bool, ours: tuple[int, int] = (0, 0)) -> Message:
    """Return the message that answers `call`."""
    fields: dict[str, Any] = {"is_error": True} if is_error else {}
    if ours != (0, 0):
        fields["ours"] = ours
    return Message(role="tool", text=text, call_id=call.call_id, tool=call.name, **fields)
