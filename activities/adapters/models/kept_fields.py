"""Fields and blocks of replies that go back to their server as they came, because only this server reads them.

| format of the part | content |
|---|---|
| `thinking`, `redacted_thinking` | a block of Anthropic |
| `reasoning` | an item of OpenAI's Responses |
| `reasoning.…` | an element of `reasoning_details` (OpenRouter) |
| `chat.NAME` | a text of thinking, in field NAME of a message: `reasoning_content` (DeepSeek), `reasoning` (vLLM) |
| `chat.message` | the other fields of a message: `extra_content` (Gemini), `thinking_blocks` (LiteLLM), unknown ones, |
| | and the texts of PDFs in `annotations` (OpenRouter) |
| `chat.block` | a chunk of thinking in the content of a message (Mistral) |
| `chat.call`, `messages.call`, `responses.call` | further fields of the call that follows: `extra_content`, `caller` |
| `messages.text`, `responses.text` | further fields of the text that follows: `citations`, `phase` (OpenAI) |
| `messages.block`, `responses.item` | a block or item of another type, such as those of a search |
| `messages.message` | `container`: the id of the container in which Anthropic ran code, and `expires_at` |
"""

from collections.abc import Iterable, Iterator, Sequence, Set
from dataclasses import dataclass, field
from typing import Any, NamedTuple, cast, get_args

from orga.workflows.types.json_text import MAX_DEPTH, as_object, as_objects, as_text, is_deeper
from orga.workflows.types.messages import Message
from orga.workflows.types.models.providers import Api
from orga.workflows.types.parts import Block, OpaquePart, Part, TextPart, ThinkingPart, ToolCall
from orga.workflows.types.text import clean_json

_TEXT_FIELDS = {
    "thinking": "thinking",
    "reasoning.text": "text",
    "reasoning.summary": "summary",
    "pydantic_ai.thinking": "text",
}
"""The key of a thinking block's text, by type."""


def block_part(block: dict[str, Any]) -> Block:
    """Return the block as a part. `wire_block` returns the same block for it."""
    data = dict(block)
    kind = data.get("type")
    if not isinstance(kind, str) or not kind:
        return OpaquePart(kind="opaque", data=data)
    del data["type"]
    text_field = _TEXT_FIELDS.get(kind)
    text = None if text_field is None else data.get(text_field)
    if text_field is None or not isinstance(text, str):
        return OpaquePart(kind="opaque", format=kind, data=data)
    del data[text_field]
    fields: dict[str, Any] = {name: value for name, value in (("text", text), ("data", data)) if value}
    return ThinkingPart(kind="thinking", format=kind, **fields)


def wire_block(part: Block) -> dict[str, Any]:
    """Return the block from which the part was made."""
    if not part.format:
        return dict(part.data)
    text = {_TEXT_FIELDS.get(part.format, "text"): part.text} if isinstance(part, ThinkingPart) else {}
    return {"type": part.format, **text, **part.data}


def kept_parts(format: str, data: dict[str, Any]) -> Iterator[Block]:
    """Yield the data as a part, unless it is empty. An empty format means that it is a block with its own type."""
    if data:
        yield OpaquePart(kind="opaque", format=format, data=data) if format else block_part(data)


MAX_CHARS = 1_000_000
"""Characters of all pieces of an object, with their names. A longer object is not sent back at all."""

_THINKING_FIELDS = ("reasoning_content", "reasoning", "reasoning_text", "thinking")
_READABLE_FIELDS = frozenset({"text", "summary", *_THINKING_FIELDS})
"""Fields with text for people. An equal piece of such a text is a new piece, not a repetition."""


@dataclass
class _Text:
    pieces: list[str] = field(default_factory=list[str])
    chars: int = 0

    def add(self, piece: str, *, may_repeat: bool) -> None:
        is_repetition = may_repeat and len(piece) == self.chars and piece == "".join(self.pieces)
        if not is_repetition:
            self.pieces.append(piece)
            self.chars += len(piece)


class StreamedFields:
    """An object that arrives in pieces: texts are joined, objects are merged, and lists grow."""

    def __init__(self, piece: dict[str, Any] | None = None, *, may_repeat: bool = False) -> None:
        """Begin with a piece. With `may_repeat`, a server may repeat the text of a field that people do not read."""
        self._fields: dict[str, Any] = {}
        self._room = MAX_CHARS
        self._may_repeat = may_repeat
        self.add(piece or {})

    def add(self, piece: dict[str, Any]) -> None:
        if not piece or self._room < 0:
            return
        self._room = -1 if is_deeper(piece, MAX_DEPTH) else self._room - len(str(piece))
        if self._room < 0:
            return
        for name, value in piece.items():
            may_repeat = self._may_repeat and not (name in _READABLE_FIELDS and isinstance(value, str))
            self._fields[name] = _extended_value(self._fields.get(name), value, may_repeat=may_repeat)

    def value(self) -> dict[str, Any]:
        """Return the whole object, or an empty one if it is too long or too deep."""
        fields = self._fields.items() if self._room >= 0 else ()
        return {name: clean_json(_whole_value(value)) for name, value in fields}

    def is_continued_by(self, piece: dict[str, Any]) -> bool:
        """Return whether `piece`, the next object of the same list, continues this object. A signature ends a text."""
        known = {name: _whole_value(self._fields.get(name)) for name in ("type", "index", "id", "signature")}
        if any(known[name] != piece.get(name, known[name]) for name in ("type", "index", "id")):
            return False  # another object
        is_numbered = known["index"] is not None or known["id"] is not None
        is_next_thought = any(map(piece.get, _READABLE_FIELDS)) or (piece.get("signature") and not is_numbered)
        has_content = not piece.keys().isdisjoint(_READABLE_FIELDS | {"signature"})
        return has_content and not (known["signature"] and is_next_thought)


def _extended_value(known: Any, value: Any, *, may_repeat: bool) -> Any:
    match value:
        case str():
            text = known if isinstance(known, _Text) else _Text()
            text.add(value, may_repeat=may_repeat)
            return text
        case dict():
            if not isinstance(known, StreamedFields):
                return StreamedFields(cast("dict[str, Any]", value), may_repeat=may_repeat)
            known.add(cast("dict[str, Any]", value))
            return known
        case list():
            begun = cast("list[Any]", known) if isinstance(known, list) else []
            return _extended_list(begun, cast("list[Any]", value), may_repeat=may_repeat)
        case _:
            return known if value is None else value


def _extended_list(known: list[Any], more: list[Any], *, may_repeat: bool) -> list[Any]:
    """Return the list with further elements. The first of them may be a piece of the last known object."""
    last = known[-1] if known else None
    for index, each in enumerate(more):
        if index == 0 and isinstance(last, StreamedFields) and isinstance(each, dict):
            piece = cast("dict[str, Any]", each)
            if last.is_continued_by(piece):
                last.add(piece)
                continue
        known.append(_extended_value(None, each, may_repeat=may_repeat))
    return known


def _whole_value(value: Any) -> Any:
    match value:
        case _Text():
            return "".join(value.pieces)
        case StreamedFields():
            return value.value()
        case list():
            return [_whole_value(each) for each in cast("list[Any]", value)]
        case _:
            return value


_DETAILS = "reasoning_details"
_DETAIL = "reasoning."
_READ_FIELDS = frozenset(
    {"role", "content", "refusal", "tool_calls", "function_call", "audio", "images", "annotations"}
)
"""Fields of a message that are read elsewhere, or that are no part of a request."""

_READ_CALL_FIELDS = frozenset({"index", "id", "type", "function"})
_READ_FUNCTION_FIELDS = frozenset({"name", "arguments"})


def further_fields(fields: dict[str, Any], known: Set[str]) -> dict[str, Any]:
    """Return the fields that are not among the known ones, without empty values."""
    return {name: value for name, value in fields.items() if name not in known and value not in (None, "", [], {})}


def further_message_fields(delta: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of a Chat Completions message that go back as they came. Only thinking stays in `content`."""
    chunks = thinking_chunks(delta.get("content"))
    return further_fields(delta, _READ_FIELDS) | ({"content": chunks} if chunks else {})


def thinking_chunks(content: object) -> list[dict[str, Any]]:
    return [chunk for chunk in as_objects(content) if chunk.get("type") == "thinking"]


MAX_FILE_CHARS = 40_000
"""Characters of all files in one reply. They are in each later request, and leave less room for calls."""


def file_annotations(message: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the texts of PDFs. Unless these are sent back, OpenRouter reads the PDFs again, and charges for it."""
    annotations = as_objects(message.get("annotations"))
    return [each for each in annotations if each.get("type") == "file" and as_object(each.get("file"))]


def file_parts(files: Iterable[dict[str, Any]], earlier: Iterable[Message]) -> Iterator[Block]:
    """Yield a part with the files that no earlier message has. A file that is too long or too deep is left out."""
    known = [file for message in earlier for file in message_fields(message).get("annotations", ())]
    fitting: list[dict[str, Any]] = []
    for file in files:
        if file not in known and len(str([*fitting, file])) <= MAX_FILE_CHARS and not is_deeper(file, MAX_DEPTH):
            fitting.append(file)
    yield from kept_parts("chat.message", clean_json({"annotations": fitting}) if fitting else {})


def further_call_fields(entry: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of a call of Chat Completions that go back as they came."""
    function = further_fields(as_object(entry.get("function")), _READ_FUNCTION_FIELDS)
    return further_fields(entry, _READ_CALL_FIELDS) | ({"function": function} if function else {})


def message_parts(fields: dict[str, Any], *, has_calls: bool) -> Iterator[Block]:
    """Yield the parts of a message's further fields. A text of thinking is kept once, and only if there are calls."""
    rest = dict(fields)
    texts = {name: as_text(rest.pop(name)) for name in _THINKING_FIELDS if isinstance(rest.get(name), str)}
    details = as_objects(rest.get(_DETAILS))
    if details and all(as_text(each.get("type")).startswith(_DETAIL) for each in details):
        del rest[_DETAILS]
        yield from map(block_part, details)
    kept_texts = dict.fromkeys(texts.values()) if has_calls and not details else {}
    for text in kept_texts:
        name, *others = (name for name in texts if texts[name] == text)
        also: dict[str, Any] = {"data": {"also": others}} if others else {}  # fields with the same text
        yield ThinkingPart(kind="thinking", format=f"chat.{name}", text=text, **also)
    for chunk in as_objects(rest.pop("content", None)):
        yield from kept_parts("chat.block", chunk)
    yield from kept_parts("chat.message", rest)


def message_fields(message: Message) -> dict[str, Any]:
    """Return the fields from which `message_parts` made its parts."""
    fields: dict[str, Any] = {}
    for part in message.blocks:
        if isinstance(part, ThinkingPart) and part.format.startswith("chat."):
            names = (part.format.removeprefix("chat."), *part.data.get("also", ()))
            fields |= {name: part.text for name in names if name in _THINKING_FIELDS}
        elif part.format == "chat.message":
            fields |= further_fields(part.data, _READ_FIELDS)
            if files := file_annotations(part.data):
                fields["annotations"] = files
        elif part.format == "chat.block":
            fields.setdefault("content", []).extend(thinking_chunks([part.data]))
        elif part.format.startswith(_DETAIL):
            fields.setdefault(_DETAILS, []).append(wire_block(part))
    return fields


MESSAGE = "messages.message"


class Container(NamedTuple):
    """A container in which Anthropic ran code. Both texts are empty if there is none."""

    id: str = ""
    expires_at: str = ""
    """The container exists at least until this time."""


def latest_container(messages: Sequence[Message]) -> Container:
    kept = (block.data for message in reversed(messages) for block in message.blocks if block.format == MESSAGE)
    containers = (Container(as_text(data.get("container")), as_text(data.get("expires_at"))) for data in kept)
    return next((container for container in containers if container.id), Container())


def parts_with_fields(parts: Iterable[Part], api: Api) -> Iterator[tuple[Part, dict[str, Any]]]:
    """Yield each part with its further fields, which only a text or a call has."""
    kinds: dict[type[Part], str] = {TextPart: f"{api}.text", ToolCall: f"{api}.call"}
    before: Part | None = None
    for part in parts:
        fields: dict[str, Any] = {}
        if isinstance(before, OpaquePart) and before.format == kinds.get(type(part)):
            fields = before.data
        yield part, fields
        before = part


def is_thinking(part: Part) -> bool:
    """Return whether a server may refuse the part because the conversation before it has changed.

    Further fields of Chat Completions count, because a signature may be among them.
    """
    return isinstance(part, (ThinkingPart, OpaquePart)) and not part.format.startswith(("messages.", "responses."))


def kept_names(messages: Iterable[Message]) -> set[str]:
    """Return the names that a refusal may use for what was sent back: names of fields, and types of blocks."""
    names: set[str] = set()
    for part in (block for message in messages for block in message.blocks):
        api, _, kind = part.format.partition(".")
        if part.format.startswith(_DETAIL):
            names.add(_DETAILS)
        elif api in get_args(Api):
            types = {as_text(part.data.get("type"))} if kind in {"block", "item"} else part.data.keys()
            names |= {kind} if isinstance(part, ThinkingPart) else types
    return names - {""}
