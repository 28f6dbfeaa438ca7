"""The conversation: messages, tool calls and a model's reply; what of it is left out, masked or cut."""

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Literal, Self, TypedDict, TypeVar, Unpack

from orga.workflows.types.record import Record, replace_differing_fields, replace_fields
from orga.workflows.types.text import clip
from orga.workflows.types.usage import Usage

BLOCK, CALL, TEXT = "block", "call", "text:"
"""The parts: an opaque block, a call, and `text:N`, so many characters of the text."""

T = TypeVar("T")


def in_order(order: Sequence[str], blocks: Iterable[T], text: str, calls: Iterable[T]) -> Iterator[T | str]:
    """Yield the parts in order. What the order does not name comes where it stands without one."""
    left: dict[str, Iterator[T]] = {BLOCK: iter(blocks), CALL: iter(calls)}
    if BLOCK not in order:
        yield from left[BLOCK]
    for part in order:
        if part in left:
            yield from _next(left[part])
        elif said := text[: _chars(part)]:
            text = text[len(said) :]
            yield said
    yield from left[BLOCK]
    if text:
        yield text
    yield from left[CALL]


def order_of(parts: Iterable[tuple[Literal["block", "call", "text"], int]]) -> tuple[str, ...]:
    """Return the order of these parts, each with the characters that it has; empty where it is the usual one."""
    order = [f"{TEXT}{chars}" if kind == "text" else kind for kind, chars in parts if kind != "text" or chars]
    ranks = [0 if part == BLOCK else 2 if part == CALL else 1 for part in order]
    is_usual = ranks == sorted(ranks) and ranks.count(1) <= 1
    return () if is_usual or BLOCK not in order else tuple(order)


def _next(parts: Iterator[T]) -> Iterator[T]:
    for part in parts:
        yield part
        return


def _chars(part: str) -> int:
    count = part.removeprefix(TEXT)
    return int(count) if count.isascii() and count.isdecimal() and len(count) < 10 else 0


Role = Literal["system", "user", "assistant", "tool"]

FinishReason = Literal["stop", "tool_calls", "length", "content_filter", "refusal"]
"""Why the model stopped. `length`: the output limit cut the reply; `content_filter`: the provider withheld it."""


class CallChanges(TypedDict, total=False):
    """What `ToolCall.with_differences` takes: its fields."""

    call_id: str
    name: str
    arguments: dict[str, Any]
    malformed: str | None


class ToolCall(Record):
    """A call that a model proposes. `call_id` is unique within its conversation (the reason activity sees to it)."""

    call_id: str
    name: str
    arguments: dict[str, Any] = {}
    malformed: str | None = None
    """The argument text as the model wrote it, when it is not a JSON object; then `arguments` is empty."""

    def with_differences(self, **changes: Unpack[CallChanges]) -> Self:
        """Return the call with what differs set."""
        return replace_differing_fields(self, changes)

    def with_id(self, call_id: str) -> Self:
        """Return the call under another id."""
        return replace_fields(self, {"call_id": call_id})

    def with_name(self, name: str) -> Self:
        """Return the call with another tool."""
        return replace_fields(self, {"name": name})

    def with_arguments(self, arguments: dict[str, Any]) -> Self:
        """Return the call with other arguments."""
        return replace_fields(self, {"arguments": arguments})


class Message(Record):
    """One message as a model sees it. A `tool` message answers the call that `call_id` names."""

    role: Role
    text: str = ""
    calls: tuple[ToolCall, ...] = ()
    blocks: tuple[dict[str, Any], ...] = ()
    """Opaque blocks of the provider (thinking and its signature), sent back to it word for word."""
    order: tuple[str, ...] = ()
    """How blocks, text and calls follow each other, see `types/messages.py`; empty: just so."""
    call_id: str | None = None
    tool: str | None = None
    is_error: bool = False
    pinned: bool = False
    """Never dropped when the context is compacted: the task, added context, context blocks."""
    summary: bool = False
    """Stands for earlier messages that were left out."""
    ours: tuple[int, int] = (0, 0)
    """Of a tool message: characters at its beginning and at its end that are the loop's own words, not the tool's."""

    def with_text(self, text: str) -> Self:
        """Return the message with another text, as much of it ours as before."""
        return replace_fields(self, {"text": text})

    def without_blocks(self) -> Self:
        """Return the message without what only its provider can read."""
        return replace_fields(self, {"blocks": (), "order": ()})

    def with_ours(self, ours: tuple[int, int]) -> Self:
        """Return the message with other parts of it ours."""
        return replace_fields(self, {"ours": ours})

    def with_own_text(self, text: str) -> Self:
        """Return the message with a text that is all ours."""
        return replace_fields(self, {"text": text, "ours": (len(text), 0)})


class ReplyChanges(TypedDict, total=False):
    """What `Reply.with_differences` takes: its fields."""

    text: str
    calls: tuple[ToolCall, ...]
    blocks: tuple[dict[str, Any], ...]
    order: tuple[str, ...]
    finish: FinishReason
    usage: Usage
    model: str | None
    cost_usd: float | None
    left_out: int
    left_out_tools: dict[str, int]


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

    def with_differences(self, **changes: Unpack[ReplyChanges]) -> Self:
        """Return the reply with what differs set."""
        return replace_differing_fields(self, changes)

    def with_calls(self, calls: tuple[ToolCall, ...]) -> Self:
        """Return the reply with other calls, its parts in the usual order."""
        return replace_fields(self, {"calls": calls, "order": ()})

    def with_cost(self, cost_usd: float | None) -> Self:
        """Return the reply with what it cost."""
        return replace_fields(self, {"cost_usd": cost_usd})

    def with_usage(self, usage: Usage, model: str, cost_usd: float) -> Self:
        """Return the reply with what it used, and who gave it."""
        return replace_fields(self, {"usage": usage, "model": model, "cost_usd": cost_usd})

    def without_calls(self) -> Self:
        """Return the reply without what it calls."""
        return replace_fields(self, {"calls": ()})

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


MAX_NAME_CHARS = 100

_MASKED = re.compile(r"\[Result of .* left out: [\d,]+ bytes\]")


def masked(message: Message) -> Message:
    """Return the message with a placeholder for a tool's result; a text that is no longer than that stays as it is.

    A masked message stays as it is, too, so that it goes on naming the size of the original.
    """
    if message.role != "tool" or _MASKED.fullmatch(message.text):
        return message
    size = _bytes(message.text)
    placeholder = f"[Result of {_name(message.tool)} left out: {size:,} bytes]"
    return message.with_own_text(placeholder) if _bytes(placeholder) < size else message


def _name(tool: str | None) -> str:
    """Return the tool's name on one line: what a model called may be no tool at all."""
    return " ".join((tool or "").split())[:MAX_NAME_CHARS] or "tool"


def _bytes(text: str) -> int:
    return len(text.encode("utf-8", "replace"))


Ranges = tuple[tuple[int, int], ...]
"""Messages by index: `[start, stop)`, in order."""


def indexes(ranges: Ranges) -> frozenset[int]:
    """Return the indexes that lie in the ranges."""
    return frozenset(index for start, stop in ranges for index in range(start, stop))


def ranges_of(found: Iterable[int]) -> Ranges:
    """Return the fewest ranges that hold exactly these indexes."""
    ranges: list[tuple[int, int]] = []
    for index in sorted(found):
        if ranges and ranges[-1][1] == index:
            ranges[-1] = (ranges[-1][0], index + 1)
        else:
            ranges.append((index, index + 1))
    return tuple(ranges)


def length(ranges: Ranges) -> int:
    """Return how many messages the ranges hold."""
    return sum(stop - start for start, stop in ranges)


def within(messages: tuple[Message, ...], ranges: Ranges) -> tuple[Message, ...]:
    """Return the messages that lie in the ranges."""
    return tuple(message for start, stop in ranges for message in messages[start:stop])


def without(messages: tuple[Message, ...], drop: Ranges) -> tuple[Message, ...]:
    """Return the messages that lie in none of the ranges."""
    gone = indexes(drop)
    return tuple(m for index, m in enumerate(messages) if index not in gone) if drop else messages


def with_masks(messages: tuple[Message, ...], mask: Ranges) -> tuple[Message, ...]:
    """Return the messages, those in the ranges masked."""
    chosen = indexes(mask)
    return tuple(masked(m) if index in chosen else m for index, m in enumerate(messages)) if mask else messages


HINT = "there is no room for more in the context; ask for a smaller part"

MAX_LAST_LINE_CHARS = 200


def shortened(message: Message, max_bytes: int) -> Message:
    """Return the message with its text within `max_bytes` of UTF-8, as near as the loop's own words allow."""
    if len(message.text.encode()) <= max_bytes:
        return message
    head, tail = message.ours
    end = max(len(message.text) - tail, head)
    before, data, after = message.text[:head], message.text[head:end], message.text[end:]
    if not data or message.role == "user":
        text = _without_middle(message.text, max_bytes)
        return message.with_own_text(text) if head or tail else message.with_text(text)
    room = max(max_bytes - len(before.encode()) - len(after.encode()), 0)
    return message.with_text(f"{before}{clip(data, room, HINT)}{after}")


def _without_middle(text: str, max_bytes: int) -> str:
    """Keep the last line, which may be the end of a block that another agent wrote."""
    body, parted, last = text.rpartition("\n")
    if not parted or len(last) > MAX_LAST_LINE_CHARS:
        return clip(text, max_bytes, HINT)
    return f"{clip(body, max(max_bytes - len(last.encode()) - 1, 0), HINT)}\n{last}"
