"""The conversation: messages, tool calls, and a model's reply."""

from typing import Any, Literal

from workflows.types.record import Record
from workflows.types.usage import Usage

Role = Literal["system", "user", "assistant", "tool"]

FinishReason = Literal["stop", "tool_calls", "length", "content_filter", "refusal"]
"""Why the model stopped. `length`: the output limit cut the reply; `content_filter`: the provider withheld it."""


class ToolCall(Record):
    """A call that a model proposes. `call_id` is unique within its conversation (the reason activity sees to it)."""

    call_id: str
    name: str
    arguments: dict[str, Any] = {}
    malformed: str | None = None
    """The argument text as the model wrote it, when it is not a JSON object; then `arguments` is empty."""


class Message(Record):
    """One message as a model sees it. A `tool` message answers the call that `call_id` names."""

    role: Role
    text: str = ""
    calls: tuple[ToolCall, ...] = ()
    blocks: tuple[dict[str, Any], ...] = ()
    """Opaque blocks of the provider (thinking and its signature), sent back to it word for word."""
    order: tuple[str, ...] = ()
    """How blocks, text and calls follow each other, see `types/parts.py`; empty: just so."""
    call_id: str | None = None
    tool: str | None = None
    is_error: bool = False
    pinned: bool = False
    """Never dropped when the context is compacted: the task, added context, context blocks."""
    summary: bool = False
    """Stands for earlier messages that were left out."""
    ours: tuple[int, int] = (0, 0)
    """Of a tool message: characters at its beginning and at its end that are the loop's own words, not the tool's."""


class Reply(Record):
    """What one model call returned, written to history once."""

    text: str = ""
    calls: tuple[ToolCall, ...] = ()
    blocks: tuple[dict[str, Any], ...] = ()
    order: tuple[str, ...] = ()
    """As in `Message`."""
    finish: FinishReason = "stop"
    usage: Usage = Usage()
    model: str | None = None
    """The model that answered, when the provider names another than the one asked for."""
    cost_usd: float | None = None
    """None when no price is known for the model."""
    left_out: int = 0
    """Calls beyond the limit of one reply, which were not taken in."""
    left_out_tools: dict[str, int] = {}
    """How many of them there are of each tool, those of the most frequent tools."""

    def message(self) -> Message:
        """Return the assistant message that the next call sends back."""
        fields: dict[str, Any] = {"role": "assistant", "text": self.text}
        if self.calls:
            fields["calls"] = self.calls
        if self.blocks:
            fields["blocks"] = self.blocks
        if self.order:
            fields["order"] = self.order
        return Message(**fields)
