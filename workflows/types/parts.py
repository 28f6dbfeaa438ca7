"""The parts of a message, in the order in which they came.

Some parts can only be read by the provider that sent them: thinking with its signature, and opaque data. They are sent
back unchanged and in their place. A part of an unknown kind is refused, never dropped.
"""

from collections.abc import Callable, Collection, Iterable
from typing import Annotated, Any, Literal, NamedTuple, Self, TypedDict, Unpack

from pydantic import Discriminator, Field, Tag, field_validator

from orga.workflows.types.record import Record, replace_differing_fields, replace_fields
from orga.workflows.types.text import printable_text

BETWEEN_TEXTS = "\n\n"
"""Separates the texts of one message that are read as one text."""


class CallChanges(TypedDict, total=False):
    kind: Literal["call"]
    call_id: str
    name: str
    arguments: dict[str, Any]
    malformed: str | None


class TextPart(Record):
    kind: Literal["text"]
    text: str


class ToolCall(Record):
    """A call that a model proposes. `call_id` is unique within its conversation (the reason activity ensures it)."""

    kind: Literal["call"] = "call"
    """Not written and a default, unlike that of other parts, because calls are also recorded outside of messages."""
    call_id: str
    name: str
    arguments: dict[str, Any] = {}
    malformed: str | None = None
    """The argument text as the model wrote it, if it is not a JSON object. Then `arguments` is empty."""

    def with_differences(self, **changes: Unpack[CallChanges]) -> Self:
        return replace_differing_fields(self, changes)

    def with_id(self, call_id: str) -> Self:
        return replace_fields(self, {"call_id": call_id})

    def with_name(self, name: str) -> Self:
        return replace_fields(self, {"name": name})

    def with_arguments(self, arguments: dict[str, Any]) -> Self:
        return replace_fields(self, {"arguments": arguments})


class OwnText(NamedTuple):
    """The number of characters at the beginning and at the end of a text that the loop wrote, not the tool."""

    before: int = 0
    after: int = 0

    def split(self, text: str) -> tuple[str, str, str]:
        """Return the loop's beginning of the text, the tool's part, and the loop's end."""
        end = max(len(text) - self.after, self.before)
        return text[: self.before], text[self.before : end], text[end:]


NO_OWN_TEXT = OwnText()


class ResultPart(Record):
    """The answer to the call that `call_id` names."""

    kind: Literal["result"]
    call_id: str | None = None
    tool: str | None = None
    text: str = ""
    is_error: bool = False
    ours: OwnText = NO_OWN_TEXT

    def with_text(self, text: str) -> Self:
        """Return the result with another text. The loop's own part keeps its length."""
        return replace_fields(self, {"text": text})

    def with_ours(self, ours: OwnText) -> Self:
        return replace_fields(self, {"ours": ours})


class ThinkingPart(Record):
    """A model's thinking, as far as its provider shows it."""

    kind: Literal["thinking"]
    format: str = ""
    """The provider's name for it, such as `thinking` or `reasoning.text`. An adapter sends it back in this format."""
    text: str = ""
    data: dict[str, Any] = {}
    """Its other fields, such as the signature."""
    author: str = ""
    """The model that wrote it, `provider:model`. No other can read it. Set if a run asks several models."""

    def with_content(self, format: str, text: str, data: dict[str, Any]) -> Self:
        return replace_differing_fields(self, {"format": format, "text": text, "data": data})

    def with_author(self, author: str) -> Self:
        return replace_fields(self, {"author": author})


class OpaquePart(Record):
    """Data that only its provider can read."""

    kind: Literal["opaque"]
    format: str = ""
    data: dict[str, Any] = {}
    author: str = ""

    def with_content(self, format: str, data: dict[str, Any]) -> Self:
        return replace_differing_fields(self, {"format": format, "data": data})

    def with_author(self, author: str) -> Self:
        return replace_fields(self, {"author": author})


MEDIA_DIGEST = r"^sha256:[0-9a-f]{64}$"

MediaType = Literal["image/png", "image/jpeg", "image/gif", "image/webp", "application/pdf"]

MAX_MEDIA_NAME_CHARS = 100

IMAGE_TOKENS = 1_600
"""Estimated tokens of a large picture. Providers scale larger ones down."""

PIXELS_PER_TOKEN = 750

PAGE_TOKENS = 2_000

BYTES_PER_PAGE = 100_000
"""Bytes that count as one page of a PDF whose pages cannot be counted."""

MAX_COUNTED_PAGES = 100

MEDIA_BYTES_PER_TOKEN = 3.3
"""The same as for text in `estimated_tokens`."""


class MediaPart(Record):
    """A picture or a document, by reference to the store of blobs. No history holds its bytes."""

    kind: Literal["image", "document"]
    media_type: str
    digest: str = Field(pattern=MEDIA_DIGEST)
    """`sha256:` and 64 hex characters."""
    size: int = Field(ge=0)
    name: str = ""
    """A file's name, for people and models. No path."""
    width: int = Field(default=0, ge=0)
    """Pixels. 0 if unknown, and for a document."""
    height: int = Field(default=0, ge=0)
    pages: int = Field(default=0, ge=0)
    """Pages of a document. 0 if they cannot be counted."""

    @field_validator("name", "media_type")
    @classmethod
    def _on_one_line(cls, text: str) -> str:
        """Return a text of a stranger so that it cannot break or forge the line of text that contains it."""
        shown = " ".join(printable_text(text[: 2 * MAX_MEDIA_NAME_CHARS]).replace("[", "(").replace("]", ")").split())
        return shown[:MAX_MEDIA_NAME_CHARS]

    def with_name(self, name: str) -> Self:
        return replace_fields(self, {"name": name})

    @property
    def tokens(self) -> int:
        if self.kind == "document":
            pages = self.pages or 1 + self.size // BYTES_PER_PAGE
            return min(pages, MAX_COUNTED_PAGES) * PAGE_TOKENS
        pixels = self.width * self.height
        return min(pixels // PIXELS_PER_TOKEN + 1, IMAGE_TOKENS) if pixels else IMAGE_TOKENS

    @property
    def text_bytes(self) -> int:
        """The number of bytes of text that take as many tokens."""
        return int(self.tokens * MEDIA_BYTES_PER_TOKEN)

    def line(self, *, with_digest: bool = False) -> str:
        """Return a line of text in its place: `[image photo.png, 640x480, 120 kB]`."""
        facts = [
            f"{self.kind} {self.name}".strip(),
            f"{self.width}x{self.height}" if self.width and self.height else "",
            f"{self.pages} page{'' if self.pages == 1 else 's'}" if self.pages else "",
            size_text(self.size),
            self.digest if with_digest else "",
        ]
        return f"[{', '.join(filter(None, facts))}]"

    def words(self, why: str = "cannot be shown to you") -> str:
        """Return a line of text in its place, for a model that cannot see it."""
        named = f" {self.name!r}" if self.name else ""
        return f"[The {self.kind}{named} ({self.media_type}, {size_text(self.size)}) {why}]"


def size_text(size: int) -> str:
    """Return a size for people: `120 kB`, `3.4 MB`."""
    if size < 1_000:
        return f"{size} bytes"
    # 999,500 bytes would be rounded to 1000 kB
    return f"{size / 1_000:.0f} kB" if size < 999_500 else f"{size / 1_000_000:.1f} MB"


def _part_kind(part: object) -> str | None:
    return part.get("kind", "call") if isinstance(part, dict) else getattr(part, "kind", None)  # pyright: ignore[reportUnknownVariableType, reportUnknownMemberType]


Part = Annotated[
    Annotated[TextPart, Tag("text")]
    | Annotated[ToolCall, Tag("call")]
    | Annotated[ResultPart, Tag("result")]
    | Annotated[ThinkingPart, Tag("thinking")]
    | Annotated[OpaquePart, Tag("opaque")]
    | Annotated[MediaPart, Tag("image")]
    | Annotated[MediaPart, Tag("document")],
    Discriminator(_part_kind),
]

Parts = tuple[Part, ...]

Block = ThinkingPart | OpaquePart
"""A part that only its provider reads."""


def text_part(text: str) -> TextPart:
    return TextPart(kind="text", text=text)


def usual_parts(text: str, calls: Iterable[ToolCall] = (), blocks: Iterable[Block] = ()) -> Parts:
    """Return the parts in the most common order: blocks, text, calls."""
    return (*blocks, *((text_part(text),) if text else ()), *calls)


def text_of(parts: Parts) -> str:
    texts = [part.text for part in parts if isinstance(part, (TextPart, ResultPart))]
    return texts[0] if len(texts) == 1 else BETWEEN_TEXTS.join(texts)


def with_text(parts: Parts, text: str) -> Parts:
    """Return the parts with one text instead of all their texts.

    It takes the place of the first text. If there was none, it precedes the calls. An empty text is left out, but a
    result keeps its part.
    """
    changed: Parts = (text_part(text),) if text else ()
    at = _index_of(parts, TextPart, ResultPart)
    if at is None:
        first_call = _index_of(parts, ToolCall)
        at = len(parts) if first_call is None else first_call
    elif isinstance(first := parts[at], ResultPart):
        changed = (first.with_text(text),)
    return (*parts[:at], *changed, *(part for part in parts[at:] if not isinstance(part, (TextPart, ResultPart))))


def _index_of(parts: Parts, *kinds: type[Part]) -> int | None:
    return next((index for index, part in enumerate(parts) if isinstance(part, kinds)), None)


def without_calls(parts: Parts, names: Collection[str]) -> Parts:
    """Return the parts without the calls of these tools."""
    return tuple(part for part in parts if not (isinstance(part, ToolCall) and part.name in names))


def media_in_words(parts: Parts, words: Callable[[MediaPart], str] = MediaPart.words) -> Parts:
    """Return the parts with a line of text in place of each picture and document."""
    return tuple(text_part(words(part)) if isinstance(part, MediaPart) else part for part in parts)


def media_line(part: MediaPart) -> str:
    """Return a line of text for people, with the digest that identifies the blob in the store."""
    return part.line(with_digest=True)
