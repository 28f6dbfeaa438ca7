"""What a message is made of: its parts, in the order in which they came.

What only its provider reads (thinking with its signature, opaque data) goes back to it word for word, in its place. A
part of a kind that this version does not know is refused, never dropped.
"""

from collections.abc import Collection, Iterable
from typing import Annotated, Any, Literal, Self, TypedDict, Unpack

from pydantic import Discriminator, Tag

from orga.workflows.types.record import Record, replace_differing_fields, replace_fields

BETWEEN_TEXTS = "\n\n"
"""Between two texts of one message, where they are read as one."""


class CallChanges(TypedDict, total=False):
    """What `ToolCall.with_differences` takes: its fields."""

    kind: Literal["call"]
    call_id: str
    name: str
    arguments: dict[str, Any]
    malformed: str | None


class TextPart(Record):
    """What is said."""

    kind: Literal["text"]
    text: str


class ToolCall(Record):
    """A call that a model proposes. `call_id` is unique within its conversation (the reason activity sees to it)."""

    kind: Literal["call"] = "call"
    """Alone among the kinds not written: calls stand in many places where they are no part of a message."""
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


class ResultPart(Record):
    """What the call that `call_id` names is answered with."""

    kind: Literal["result"]
    call_id: str | None = None
    tool: str | None = None
    text: str = ""
    is_error: bool = False
    ours: tuple[int, int] = (0, 0)
    """Characters at its beginning and at its end that are the loop's own words, not the tool's."""

    def with_text(self, text: str) -> Self:
        """Return the result with another text, as much of it ours as before."""
        return replace_fields(self, {"text": text})

    def with_ours(self, ours: tuple[int, int]) -> Self:
        """Return the result with other parts of its text ours."""
        return replace_fields(self, {"ours": ours})


class ThinkingPart(Record):
    """What a model thought, as far as its provider shows it."""

    kind: Literal["thinking"]
    format: str = ""
    """What its provider calls it, by which an adapter knows what it can send back: `thinking`, `reasoning.text`."""
    text: str = ""
    data: dict[str, Any] = {}
    """The rest of it, its signature above all."""
    author: str = ""
    """The model, `provider:model`, where a run asks several: no other can read it."""

    def with_content(self, format: str, text: str, data: dict[str, Any]) -> Self:
        """Return the part with other content."""
        return replace_differing_fields(self, {"format": format, "text": text, "data": data})

    def with_author(self, author: str) -> Self:
        """Return the part as one of that model."""
        return replace_fields(self, {"author": author})


class OpaquePart(Record):
    """What only its provider can read."""

    kind: Literal["opaque"]
    format: str = ""
    """As in `ThinkingPart`."""
    data: dict[str, Any] = {}
    author: str = ""
    """As in `ThinkingPart`."""

    def with_content(self, format: str, data: dict[str, Any]) -> Self:
        """Return the part with other content."""
        return replace_differing_fields(self, {"format": format, "data": data})

    def with_author(self, author: str) -> Self:
        """Return the part as one of that model."""
        return replace_fields(self, {"author": author})


class MediaPart(Record):
    """What is no text: here as base64, or where it can be fetched."""

    media_type: str
    base64: str = ""
    url: str = ""
    name: str = ""
    """Of the file."""


class ImagePart(MediaPart):
    """A picture."""

    kind: Literal["image"]


class DocumentPart(MediaPart):
    """A file to read, such as a PDF."""

    kind: Literal["document"]


def _part_kind(part: object) -> str | None:
    return part.get("kind", "call") if isinstance(part, dict) else getattr(part, "kind", None)  # pyright: ignore[reportUnknownVariableType, reportUnknownMemberType]


Part = Annotated[
    Annotated[TextPart, Tag("text")]
    | Annotated[ToolCall, Tag("call")]
    | Annotated[ResultPart, Tag("result")]
    | Annotated[ThinkingPart, Tag("thinking")]
    | Annotated[OpaquePart, Tag("opaque")]
    | Annotated[ImagePart, Tag("image")]
    | Annotated[DocumentPart, Tag("document")],
    Discriminator(_part_kind),
]

Parts = tuple[Part, ...]

Block = ThinkingPart | OpaquePart
"""What only its provider reads."""


def text_part(text: str) -> TextPart:
    """Return the text as a part."""
    return TextPart(kind="text", text=text)


def usual_parts(text: str, calls: Iterable[ToolCall] = (), blocks: Iterable[Block] = ()) -> Parts:
    """Return the parts in the order in which they mostly come: blocks, text, calls."""
    return (*blocks, *((text_part(text),) if text else ()), *calls)


def text_of(parts: Parts) -> str:
    """Return what is said as one text, what a call is answered with among it."""
    texts = [part.text for part in parts if isinstance(part, (TextPart, ResultPart))]
    return texts[0] if len(texts) == 1 else BETWEEN_TEXTS.join(texts)


def calls_of(parts: Parts) -> tuple[ToolCall, ...]:
    """Return the calls."""
    return tuple(part for part in parts if isinstance(part, ToolCall))


def blocks_of(parts: Parts) -> tuple[Block, ...]:
    """Return what only its provider reads."""
    return tuple(part for part in parts if isinstance(part, (ThinkingPart, OpaquePart)))


def with_text(parts: Parts, text: str) -> Parts:
    """Return the parts with another text, all of it where the first one stood, else in front of the calls."""
    fresh: list[Part] = []
    place: int | None = None
    for part in parts:
        if not isinstance(part, (TextPart, ResultPart)):
            fresh.append(part)
        elif place is None:
            place = len(fresh)
            fresh += [part.with_text(text)] if isinstance(part, ResultPart) else [text_part(text)] if text else []
    if place is None and text:
        fresh.insert(
            next((i for i, part in enumerate(fresh) if isinstance(part, ToolCall)), len(fresh)), text_part(text)
        )
    return tuple(fresh)


def without_calls(parts: Parts, names: Collection[str] | None = None) -> Parts:
    """Return the parts without the calls of these tools, of all tools where none are named."""
    return tuple(p for p in parts if not isinstance(p, ToolCall) or (names is not None and p.name not in names))


def without_blocks(parts: Parts) -> Parts:
    """Return what every provider can read."""
    return tuple(part for part in parts if not isinstance(part, (ThinkingPart, OpaquePart)))


def with_author(parts: Parts, author: str) -> Parts:
    """Return the parts of a reply, those that only its model reads with its name."""
    return tuple(part.with_author(author) if isinstance(part, (ThinkingPart, OpaquePart)) else part for part in parts)


def readable_by(parts: Parts, model: str) -> Parts:
    """Return the parts without what another model wrote for itself alone."""
    if not blocks_of(parts):
        return parts
    return tuple(
        part for part in parts if not isinstance(part, (ThinkingPart, OpaquePart)) or part.author in {"", model}
    )


def with_placeholders(parts: Parts) -> Parts:
    """Return the parts with a line of text for all that is no text: no adapter can send that yet."""
    if not any(isinstance(part, (ImagePart, DocumentPart)) for part in parts):
        return parts
    return tuple(
        text_part(_placeholder(part)) if isinstance(part, (ImagePart, DocumentPart)) else part for part in parts
    )


def _placeholder(part: ImagePart | DocumentPart) -> str:
    words = " ".join(f"{part.media_type[:100]} {part.name[:100]}".split())
    return f"[The {part.kind} {words!r} cannot be shown to you]"
