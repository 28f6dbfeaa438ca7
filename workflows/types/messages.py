"""Messages of a conversation, a model's reply, and how messages are masked, cut and counted in ranges."""

import re
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Literal, Self, TypedDict, Unpack

from orga.workflows.types.models.tiers import FailedOver
from orga.workflows.types.models.usage import Usage
from orga.workflows.types.parts import (
    NO_OWN_TEXT,
    Block,
    MediaPart,
    OwnText,
    Parts,
    ResultPart,
    ToolCall,
    media_in_words,
    media_line,
    text_of,
    usual_parts,
    with_text,
)
from orga.workflows.types.record import Record, replace_differing_fields, replace_fields
from orga.workflows.types.text import clip

Role = Literal["system", "user", "assistant", "tool"]

UNUSABLE_MARKER = "[Reply not usable] "
"""Begins the loop's feedback to a model about an unusable reply. The feedback is a user message."""

FinishReason = Literal["stop", "tool_calls", "length", "content_filter", "refusal"]
"""The reason why the model stopped. `length`: the output limit cut the reply. `content_filter`: the provider withheld
it.
"""


class HasParts:
    """A message or reply, as ordered parts."""

    if TYPE_CHECKING:
        parts: Parts

    @property
    def text(self) -> str:
        return text_of(self.parts)

    @property
    def calls(self) -> tuple[ToolCall, ...]:
        return tuple(part for part in self.parts if isinstance(part, ToolCall))

    @property
    def blocks(self) -> tuple[Block, ...]:
        """The blocks that only their provider reads, in order."""
        return tuple(part for part in self.parts if isinstance(part, Block))

    @property
    def media(self) -> tuple[MediaPart, ...]:
        return tuple(part for part in self.parts if isinstance(part, MediaPart))


class Message(HasParts, Record):
    """One message as a model sees it.

    A `tool` message begins with one result part, which names the call that it answers. Its pictures and documents
    follow.
    """

    role: Role
    parts: Parts = ()
    pinned: bool = False
    """True if compaction drops other messages first, as for the task, added context and lookups."""
    summary: bool = False
    """True if it replaces earlier messages that were left out."""
    knowledge: bool = False
    """True if it is the block of recalled knowledge."""
    begins_turn: bool = False
    """True for the message that begins a turn of a session, for its lookups, and for the task of a run with given
    messages. Until a later turn begins, compaction never drops the message that began the turn.
    """
    untrusted: bool = False
    """True if it was given as an earlier message of the user and nobody vouches for it."""

    @classmethod
    def of(
        cls,
        role: Role,
        text: str = "",
        calls: Iterable[ToolCall] = (),
        blocks: Iterable[Block] = (),
        *,
        pinned: bool = False,
        summary: bool = False,
        knowledge: bool = False,
        begins_turn: bool = False,
        untrusted: bool = False,
    ) -> Self:
        """Return a message with its parts in the usual order. Only what differs from the defaults is set."""
        given: dict[str, Any] = {
            "parts": usual_parts(text, calls, blocks),
            "pinned": pinned,
            "summary": summary,
            "knowledge": knowledge,
            "begins_turn": begins_turn,
            "untrusted": untrusted,
        }
        return cls(role=role, **{name: value for name, value in given.items() if value})

    @classmethod
    def of_result(
        cls,
        text: str = "",
        call_id: str | None = None,
        tool: str | None = None,
        *,
        is_error: bool = False,
        ours: OwnText = NO_OWN_TEXT,
        pinned: bool = False,
    ) -> Self:
        """Return the `tool` message that answers a call. Only what differs from the defaults is set."""
        given: dict[str, Any] = {"call_id": call_id, "tool": tool, "text": text, "is_error": is_error}
        given["ours"] = ours if any(ours) else None
        result = ResultPart(kind="result", **{name: value for name, value in given.items() if value})
        return cls(role="tool", parts=(result,), pinned=True) if pinned else cls(role="tool", parts=(result,))

    @property
    def result(self) -> ResultPart | None:
        first = self.parts[0] if self.parts else None
        return first if isinstance(first, ResultPart) else None

    @property
    def call_id(self) -> str | None:
        return self.result.call_id if self.result else None

    @property
    def tool(self) -> str | None:
        return self.result.tool if self.result else None

    @property
    def is_error(self) -> bool:
        return self.result.is_error if self.result else False

    @property
    def ours(self) -> OwnText:
        return self.result.ours if self.result else NO_OWN_TEXT

    def with_parts(self, parts: Parts) -> Self:
        return replace_fields(self, {"parts": parts})

    def with_text(self, text: str) -> Self:
        """Return the message with another text. The loop's own part of it keeps its length."""
        return self.with_parts(with_text(self.parts, text))

    def without_blocks(self) -> Self:
        """Return the message without the blocks that only their provider can read."""
        return replace_fields(self, {"parts": tuple(part for part in self.parts if not isinstance(part, Block))})

    def readable_by(self, model: str) -> Self:
        """Return the message without the blocks of other models."""
        others = {id(block) for block in self.blocks if block.author not in {"", model}}
        return self.with_parts(tuple(part for part in self.parts if id(part) not in others)) if others else self

    def with_media(self, media: tuple[MediaPart, ...]) -> Self:
        return self.with_parts((*self.parts, *media)) if media else self

    def without_media(self) -> Self:
        kept = tuple(part for part in self.parts if not isinstance(part, MediaPart))
        return self.with_parts(kept) if self.media else self

    def media_in_words(self, words: Callable[[MediaPart], str] = MediaPart.words) -> Self:
        """Return the message with a line of text in place of each picture and document."""
        return self.with_parts(media_in_words(self.parts, words)) if self.media else self

    def for_people(self) -> Self:
        """Return the message with a line for each picture and document. The text of a reply has these lines already."""
        return self.without_media() if self.role == "assistant" else self.media_in_words(media_line)

    def with_ours(self, ours: OwnText) -> Self:
        return self.with_parts((self.result.with_ours(ours), *self.parts[1:])) if self.result else self

    def with_own_text(self, text: str) -> Self:
        """Return the message with a text that the loop wrote, not a tool."""
        return self.with_text(text).with_ours(OwnText(len(text)))


class ReplyFields(TypedDict, total=False):
    """Fields of a `Reply` other than its parts."""

    finish: FinishReason
    usage: Usage
    model: str | None
    cost_usd: float | None
    left_out: int
    left_out_tools: dict[str, int]
    failed_over: tuple[FailedOver, ...]


class ReplyChanges(ReplyFields, total=False):
    parts: Parts


class Reply(HasParts, Record):
    """The result of one model call. It is written to history once."""

    parts: Parts = ()
    finish: FinishReason = "stop"
    usage: Usage = Usage()
    model: str | None = None
    """The model that answered, if it is not the one that was asked first."""
    cost_usd: float | None = None
    """None if no price is known for the model."""
    left_out: int = 0
    """The number of calls beyond the limit of one reply. They were ignored."""
    left_out_tools: dict[str, int] = {}
    """The number of ignored calls by tool, for the most frequent tools."""
    failed_over: tuple[FailedOver, ...] = ()
    """The models that failed before this one answered, in order."""

    @classmethod
    def of(
        cls,
        text: str = "",
        calls: Iterable[ToolCall] = (),
        blocks: Iterable[Block] = (),
        **fields: Unpack[ReplyFields],
    ) -> Self:
        """Return a reply with its parts in the usual order."""
        parts = usual_parts(text, calls, blocks)
        return cls(parts=parts, **fields) if parts else cls(**fields)

    @property
    def is_only_thinking(self) -> bool:
        """True if the output limit cut the reply before any text or call."""
        return self.finish == "length" and not self.calls and not self.text.strip()

    def with_differences(self, **changes: Unpack[ReplyChanges]) -> Self:
        return replace_differing_fields(self, changes)

    def with_author(self, author: str) -> Self:
        """Return the reply with this model's name on each block that others cannot read."""
        parts = tuple(part.with_author(author) if isinstance(part, Block) else part for part in self.parts)
        return replace_differing_fields(self, {"parts": parts})

    def with_cost(self, cost_usd: float | None) -> Self:
        return replace_fields(self, {"cost_usd": cost_usd})

    def with_usage(self, usage: Usage, model: str, cost_usd: float) -> Self:
        return replace_fields(self, {"usage": usage, "model": model, "cost_usd": cost_usd})

    def without_calls(self) -> Self:
        return replace_fields(self, {"parts": tuple(part for part in self.parts if not isinstance(part, ToolCall))})

    def message(self) -> Message:
        """Return the assistant message that the next call sends back."""
        return Message(role="assistant", parts=self.parts) if self.parts else Message(role="assistant")


MAX_NAME_CHARS = 100

_MASKED = re.compile(r"\[Result of .* left out: [\d,]+ bytes\]")


def masked_message(message: Message) -> Message:
    """Return the message with a placeholder for a tool's result, and without pictures and documents.

    A text that is not longer than the placeholder is kept. A masked message is not masked again, because its text
    names the size of the original.
    """
    if message.role != "tool" or _MASKED.fullmatch(message.text):
        return message
    message = message.without_media()
    size = len(message.text.encode("utf-8", "replace"))
    tool = " ".join((message.tool or "").split())[:MAX_NAME_CHARS] or "tool"  # a model may use any text as a name
    placeholder = f"[Result of {tool} left out: {size:,} bytes]"
    return message.with_own_text(placeholder) if len(placeholder.encode("utf-8", "replace")) < size else message


CUT_HINT = "there is no room for more in the context; ask for a smaller part"

MAX_LAST_LINE_CHARS = 200


def shortened_message(message: Message, max_bytes: int) -> Message:
    """Return the message with its text cut to `max_bytes` of UTF-8. The loop's text around a tool's text is not cut."""
    if len(message.text.encode()) <= max_bytes:
        return message
    before, data, after = message.ours.split(message.text)
    if not data or message.role == "user":
        text = _without_middle(message.text, max_bytes)
        return message.with_own_text(text) if any(message.ours) else message.with_text(text)
    room = max(max_bytes - len(before.encode()) - len(after.encode()), 0)
    return message.with_text(f"{before}{clip(data, room, CUT_HINT)}{after}")


def _without_middle(text: str, max_bytes: int) -> str:
    """Return the text cut before its last line, which may close a delimited block."""
    body, parted, last = text.rpartition("\n")
    if not parted or len(last) > MAX_LAST_LINE_CHARS:
        return clip(text, max_bytes, CUT_HINT)
    return f"{clip(body, max(max_bytes - len(last.encode()) - 1, 0), CUT_HINT)}\n{last}"


Ranges = tuple[tuple[int, int], ...]
"""Message indexes as `[start, stop)`, in order."""


def range_indexes(ranges: Ranges) -> frozenset[int]:
    return frozenset(index for start, stop in ranges for index in range(start, stop))


def ranges_of(indexes: Iterable[int]) -> Ranges:
    """Return the fewest ranges that hold exactly these indexes."""
    ranges: list[tuple[int, int]] = []
    for index in sorted(indexes):
        if ranges and ranges[-1][1] == index:
            ranges[-1] = (ranges[-1][0], index + 1)
        else:
            ranges.append((index, index + 1))
    return tuple(ranges)


def ranges_length(ranges: Ranges) -> int:
    return sum(stop - start for start, stop in ranges)


def messages_within(messages: tuple[Message, ...], ranges: Ranges) -> tuple[Message, ...]:
    return tuple(message for start, stop in ranges for message in messages[start:stop])


def messages_without(messages: tuple[Message, ...], drop: Ranges) -> tuple[Message, ...]:
    gone = range_indexes(drop)
    return tuple(m for index, m in enumerate(messages) if index not in gone) if drop else messages


def with_masks(messages: tuple[Message, ...], mask: Ranges) -> tuple[Message, ...]:
    chosen = range_indexes(mask)
    return tuple(masked_message(m) if index in chosen else m for index, m in enumerate(messages)) if mask else messages
