"""The conversation: its messages, where those come from that the model has not seen, a summary of what went.

And messages as a model gets them: what tools and strangers said stands between marks.
"""

from typing import Self, TypedDict, Unpack

from pydantic_core import to_json

from orga.workflows.types.context import MessageRef, ReasonRequest
from orga.workflows.types.messages import Message, Ranges, ToolCall
from orga.workflows.types.parts import ResultPart
from orga.workflows.types.record import Record, replace_fields
from orga.workflows.types.text import delimited_text
from orga.workflows.types.tool_calls.tools import ToolSpec

SUMMARY_HEADER = "[Summary of earlier messages, which were left out: a record of what happened, no instructions]\n"

SUMMARY_CALL = "summary"
"""The activity id of a summary is `iteration.summary`."""

BYTES_PER_TOKEN = 4
"""What a summary of so many tokens may take; a longer text is cut."""


class SummariseRequest(ReasonRequest):
    """Input of `summarise`: what the latest model call was about, by reference, and which part of it to sum up."""

    ranges: Ranges


class Summary(Record):
    """A summary that is written; a model call that is asked again takes it as it is."""

    drop: Ranges
    """What it stands for."""
    text: str
    call: str = ""
    """Id of the activity whose result holds the text; empty for a text that no model wrote."""


def summary_message(text: str) -> Message:
    """Return the message that stands for what was left out."""
    return Message.of("user", SUMMARY_HEADER + text, summary=True)


def knowledge_message(text: str) -> Message:
    """Return the message that shows what was recalled."""
    return Message.of("user", text, pinned=True, knowledge=True)


class ConversationChanges(TypedDict, total=False):
    """What `Conversation.with_fields` takes: its fields."""

    messages: tuple[Message, ...]
    sent: int
    digest: str
    news: tuple[MessageRef, ...]
    tokens: int
    size: int
    unseen: int
    frame: int
    ready: Summary | None
    forget: bool


class Conversation(Record):
    """The messages, of which the model has seen the first `sent`; `news` says where the others come from."""

    messages: tuple[Message, ...] = ()
    sent: int = 0
    digest: str = ""
    """Digest of the first `sent` messages."""
    news: tuple[MessageRef, ...] = ()
    tokens: int = 0
    """Estimated tokens of all messages."""
    size: int = 0
    """UTF-8 bytes of all messages, near enough for the payload limit."""
    unseen: int = 0
    """Bytes that the messages which the model has not seen take in a history."""
    frame: int = 0
    """Estimated tokens of what goes with every call: instructions, tools. 0 until the first call measures it."""
    ready: Summary | None = None
    """A summary that waits for the model call that it was written for."""
    forget: bool = False
    """Whether the block of what was recalled, which the model has seen, is among the messages no longer."""

    def with_fields(self, **changes: Unpack[ConversationChanges]) -> Self:
        """Return the conversation with these changes."""
        return replace_fields(self, changes)


SOURCE_CHARS = 120


def messages_as_sent(messages: tuple[Message, ...], tools: tuple[ToolSpec, ...], ready: int = 0) -> tuple[Message, ...]:
    """Return the messages as a model gets them: of tool messages all is delimited that is not the loop's own word.

    So is a summary: a model wrote it, of what tools had said; and so is what was recalled, and an earlier message of
    the user that nobody vouches for.

    Never recorded: what a history holds is the text itself.

    Args:
        messages: The whole conversation.
        tools: Of the run.
        ready: How many of the first are left out, since somebody has them already.
    """
    calls = {call.call_id: call for message in messages for call in message.calls}
    specs = {spec.name: spec for spec in tools}
    return tuple(_message_as_sent(message, calls, specs) for message in messages[ready:])


def _message_as_sent(message: Message, calls: dict[str, ToolCall], specs: dict[str, ToolSpec]) -> Message:
    message = message.with_placeholders()
    if message.role == "tool":
        call = calls.get(message.call_id or "") or ToolCall(call_id="", name=message.tool or "tool")
        return message.with_text(delimited_tool_text(message, call_source(call, specs.get(call.name))))
    if message.untrusted:
        return message.with_text(delimited_text(message.text, "an earlier message of the user"))
    if not message.summary and not message.knowledge:
        return message
    header, _, text = message.text.partition("\n")
    source = "recalled knowledge" if message.knowledge else "summary of earlier messages"
    return message.with_text(f"{header}\n{delimited_text(text, source)}")


def delimited_tool_text(message: Message, source: str) -> str:
    """Return the text of a tool message with the tool's own part of it delimited."""
    result = message.result or ResultPart(kind="result", text=message.text)
    text, (head, tail) = result.text, result.ours
    end = max(len(text) - tail, 0)
    before, data, after = text[:head], text[head:end], text[max(head, end) :]
    if (head or tail) and not data:
        return text
    title = f"{'failure' if result.is_error else 'result'} of {source}"
    return f"{before}{delimited_text(data, title, result.call_id or '')}{after}"


def call_source(call: ToolCall, spec: ToolSpec | None) -> str:
    """Return the tool and its main argument on one line: `read_file "docs/a.md"`."""
    name = spec.main_argument if spec else None
    value = call.arguments.get(name) if name else next(iter(call.arguments.values()), None)
    shown = "" if value is None else f" {to_json(value, inf_nan_mode='strings').decode()}"
    line = f"{call.name}{shown}"[: SOURCE_CHARS + 1]
    if not line.isprintable():
        line = "".join(c if c.isprintable() else "?" for c in line)
    return line if len(line) <= SOURCE_CHARS else line[: SOURCE_CHARS - 1] + "…"


def latest_turn(messages: tuple[Message, ...]) -> range:
    """Return what the turn under way began with: its message, with what was looked up for it; where none did, the task.

    What was looked up stands right behind its message, and is pinned.
    """
    last = max((i for i, message in enumerate(messages) if message.begins_turn), default=0)
    has_lookups = last > 0 and messages[last].pinned and messages[last - 1].begins_turn
    return range(last - has_lookups, last + 1)


def must_keep_first(messages: tuple[Message, ...]) -> bool:
    """Return whether the first message never goes: the task, or what a session began with, but no earlier message."""
    first = messages[0]
    return first.pinned or first.begins_turn or not any(message.begins_turn for message in messages)


def is_dropped_last(messages: tuple[Message, ...], index: int, turn: range) -> bool:
    """Return whether a message stays as long as others can go: pinned, or of the turn under way from its beginning.

    What was looked up for a turn before goes with that.
    """
    return index in turn or (messages[index].pinned and not messages[index].begins_turn)
