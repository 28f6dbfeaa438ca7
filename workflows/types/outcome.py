"""What became of the calls of one reply: one outcome for each, in call order."""

from typing import Literal

from workflows.types.messages import Message, ToolCall
from workflows.types.record import Record

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

    def message(self) -> Message:
        """Return the tool message that answers the call."""
        return tool_message(self.call, self.text, is_error=self.status != "ok")


def tool_message(call: ToolCall, text: str, *, is_error: bool) -> Message:
    """Return the message that answers `call`."""
    if is_error:
        return Message(role="tool", text=text, call_id=call.call_id, tool=call.name, is_error=True)
    return Message(role="tool", text=text, call_id=call.call_id, tool=call.name)
