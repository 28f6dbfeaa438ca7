"""Assembles a reply from the pieces that a stream reader passes, within a limit for the whole reply."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import chain, count
from json import JSONDecoder, dumps
from math import ceil
from typing import Any, cast

from pydantic_core import from_json, to_json

from orga.activities.adapters.models.dialect import BYTES_PER_TOKEN, request_bytes
from orga.activities.adapters.models.kept_fields import StreamedFields, kept_parts
from orga.activities.adapters.models.media import made_image
from orga.activities.ports import LoadedMedia, ModelRequest, ThinkingListener
from orga.workflows.types.json_text import has_unique_keys
from orga.workflows.types.messages import FinishReason, Message, Reply, ToolCall
from orga.workflows.types.models.usage import Usage
from orga.workflows.types.parts import BETWEEN_TEXTS, Block, Part, Parts, text_part
from orga.workflows.types.text import clean_json, clean_text


class ObjectText:
    """Finds the end of an object in streamed text, which need not be valid JSON."""

    def __init__(self) -> None:
        self._depth = 0
        self._began = False
        self._in_string = False
        self._is_escaped = False

    @property
    def is_whole(self) -> bool:
        """True if the object has begun and is closed."""
        return self._began and not self._depth

    def add(self, pieces: Iterable[str]) -> None:
        for char in chain.from_iterable(pieces):
            if self._is_escaped:
                self._is_escaped = False
            elif self._in_string:
                self._is_escaped = char == "\\"
                self._in_string = char != '"'
            elif char == '"':
                self._in_string = True
            elif char in "{}":
                self._began = True
                self._depth += 1 if char == "{" else -1


MAX_NAME_CHARS = 200
MAX_ID_CHARS = 200
MAX_MALFORMED_CHARS = 10_000

_MAX_REPEATED = 8
"""The most JSON values that are read in the arguments of one call."""

_DECODER = JSONDecoder()


@dataclass
class OpenCall:
    """A call that is still streaming in."""

    index: int | None = None
    """The provider's own number of the call."""
    call_id: str = ""
    name: str = ""
    arguments: list[str] = field(default_factory=list[str])
    fields: StreamedFields = field(default_factory=StreamedFields)
    """Its further fields, which go back as they came."""
    fields_format: str = "chat.call"
    _text: ObjectText = field(default_factory=ObjectText)
    _pieces_read: int = 0

    def is_whole(self) -> bool:
        """Return whether its arguments are a closed object."""
        self._text.add(self.arguments[self._pieces_read :])
        self._pieces_read = len(self.arguments)
        return self._text.is_whole


def finished_calls(calls: Iterable[OpenCall], earlier: Iterable[Message]) -> tuple[ToolCall, ...]:
    """Return the calls of a reply, each with an id that is unique in the reply and the conversation.

    The first free id of `call_1`, `call_2`, ... replaces a missing, repeated or overlong id.
    """
    calls = list(calls)
    taken = {call.call_id for message in earlier for call in message.calls}
    reserved = taken | {call.call_id for call in calls}
    finished: list[ToolCall] = []
    for call in calls:
        call_id = clean_text(call.call_id)
        if not 0 < len(call_id) <= MAX_ID_CHARS or call_id in taken:
            call_id = next(name for n in count(1) if (name := f"call_{n}") not in reserved)
        taken.add(call_id)
        reserved.add(call_id)
        finished.append(tool_call(call_id, call.name, "".join(call.arguments)))
    return tuple(finished)


def tool_call(call_id: str, name: str, arguments: str) -> ToolCall:
    fields: dict[str, Any] = {"call_id": call_id, "name": clean_text(name)[:MAX_NAME_CHARS]}
    text = clean_text(arguments)
    parsed = _parsed_object(text) if text.strip() else {}
    if parsed is None:
        parsed = _repeated_object(text)
    if parsed is None:
        fields["malformed"] = text[:MAX_MALFORMED_CHARS]
    elif parsed:
        fields["arguments"] = parsed
    return ToolCall(**fields)


def _repeated_object(text: str) -> dict[str, Any] | None:
    """Return the only object of a text that also has placeholders (`{}`, `[]`, `null`), or repeats that object.

    Some servers begin a call with a placeholder before the real object, and others repeat the whole object. A text with
    different objects is refused, because nobody can know which of them the model meant.
    """
    texts: dict[str, str] = {}  # the text of each different value, by its canonical JSON
    rest = text.strip()
    for _ in range(_MAX_REPEATED):
        try:
            value, end = _DECODER.raw_decode(rest)
            if value not in ({}, [], None):
                texts[dumps(value, sort_keys=True)] = rest[:end]
        except (ValueError, RecursionError):
            return None
        rest = rest[end:].strip()
        if not rest:
            break
    if rest or len(texts) > 1 or "{" not in text:
        return None
    return _parsed_object(next(iter(texts.values()), "{}"))


def _parsed_object(text: str) -> dict[str, Any] | None:
    """Return the object, or None if there is none, or if JSON cannot express it: 1e999 becomes infinity, for example.

    A repeated key is refused: the last value would be judged and used, but a person may have read the first.
    """
    try:
        parsed = from_json(text, allow_inf_nan=False)
        from_json(to_json(parsed, inf_nan_mode="constants"), allow_inf_nan=False)
    except ValueError:
        return None
    is_fit = isinstance(parsed, dict) and has_unique_keys(text)
    return cast("dict[str, Any]", clean_json(parsed)) if is_fit else None


MAX_REPLY_BYTES = 1_000_000
"""Bytes of text, arguments and blocks as JSON: half of Temporal's payload limit."""

MAX_OPEN_CALLS = 256
"""Calls of one reply while it streams in: many times the number that is accepted."""

MAX_PARTS = 1_000
"""Texts, calls and blocks of one reply."""

_WITHHELD_REASONS: frozenset[FinishReason] = frozenset({"length", "content_filter", "refusal"})
"""Reasons of a cut or withheld reply. Any other reason becomes `tool_calls` if there are calls, or else `stop`."""

_OpenPart = OpenCall | list[str] | LoadedMedia | Callable[[], Iterable[Block]]
"""A part while the reply streams in: a call, pieces of a text, a picture, or a function that returns blocks later."""


class ReplyAssembly:
    """Collects the pieces of one reply. If it is `full`, the rest is dropped, and the reply counts as cut by length."""

    def __init__(self, request: ModelRequest, on_text: Callable[[str], None]) -> None:
        self.calls: list[OpenCall] = []
        self.full = False
        self._request = request
        self._on_text = on_text
        self._on_thinking = on_text.add_thinking if isinstance(on_text, ThinkingListener) else None
        self._thought: object = None
        """The thought that the latest piece of thinking belongs to."""
        self._text: list[str] | None = None
        self._parts: list[_OpenPart] = []
        self._images: set[str] = set()
        """Digests of the pictures."""
        self._half = ""
        self._room = MAX_REPLY_BYTES
        """Bytes that still fit."""

    def begin_text(self) -> None:
        """Make the next text a new part."""
        self._text = None

    def add_text(self, piece: str) -> None:
        """Add visible text to the latest one. The first half of a surrogate pair waits for the second."""
        piece = self._half + piece
        self._half = piece[-1:] if "\ud800" <= piece[-1:] <= "\udbff" else ""
        text = self.take_within_room(clean_text(piece.removesuffix(self._half)))
        if text:
            if self._text is None:
                if any(isinstance(part, list) for part in self._parts):
                    self._on_text(BETWEEN_TEXTS)
                self._text = []
                self._add(self._text)
            self._text.append(text)
            self._on_text(text)

    def show_thinking(self, piece: str, thought: object) -> None:
        """Pass a piece of thinking to the listener. The reply gets the whole thought from `add_blocks`.

        `thought` identifies the thought. A blank line separates two thoughts.
        """
        if piece and self._on_thinking is not None:
            if self._thought not in {None, thought}:
                self._on_thinking(BETWEEN_TEXTS)
            self._thought = thought
            self._on_thinking(piece)

    def open_call(self, call: OpenCall) -> bool:
        """Begin a call. Return False if there are too many calls. The rest is dropped then."""
        self.full = self.full or len(self.calls) >= MAX_OPEN_CALLS
        if not self.full:
            self.calls.append(call)
            self._add(call)
        return not self.full

    def add_blocks(self, blocks: Callable[[], Iterable[Block]]) -> None:
        """Keep a place for the blocks. `blocks` returns them when the reply is complete."""
        self._add(blocks)

    def add_image(self, text: str) -> None:
        """Add a picture that the model made, from its base64 or data URL. An address is shown as text.

        A server may repeat a picture at the end. Its bytes go to the store, so they take no room.
        """
        image = made_image(text, len(self._images) + 1)
        if image is not None and image.digest not in self._images:
            self._images.add(image.digest)
            self.begin_text()
            self._add(image)
            self.begin_text()
        elif text.startswith("https://"):
            self.add_text(f"[image at {text}]")

    def _add(self, part: _OpenPart) -> None:
        self.full = self.full or len(self._parts) >= MAX_PARTS
        self._parts.append(part)

    def add_arguments(self, call: OpenCall, piece: str) -> None:
        call.arguments.append(self.take_within_room(piece))

    def _fitting_blocks(self, blocks: Iterable[Block]) -> Iterator[Block]:
        """Yield the blocks until one does not fit. That one and all later ones are dropped."""
        for block in blocks:
            size = len(to_json(block))
            self.full = self.full or size > self._room
            if not self.full:
                self._room -= size
                yield block

    def take_within_room(self, piece: str) -> str:
        """Return the part of `piece` that fits, and use up its room."""
        kept = piece
        while (size := _json_bytes(kept)) > self._room:
            kept = kept[: len(kept) * self._room // size]  # characters differ in bytes, so one cut may not be enough
            self.full = True
        self._room -= size
        return kept

    def _finished_parts(self) -> Iterator[Part]:
        calls = iter(finished_calls(self.calls, self._request.messages))
        for part in self._parts:
            if isinstance(part, OpenCall):
                yield from self._fitting_blocks(kept_parts(part.fields_format, part.fields.value()))
                yield next(calls)
            elif isinstance(part, LoadedMedia):
                yield part
            elif callable(part):
                yield from self._fitting_blocks(part())
            else:
                yield text_part("".join(part))

    def reply(
        self, finish: FinishReason, counted: Usage, model: str, cost_of: Callable[[Usage], float | None]
    ) -> Reply:
        """Return the reply. Only fields that differ from the defaults are set, because history stores the set fields.

        Args:
            counted: The provider's counts. An estimate replaces missing counts.
            model: The model that answered.
            cost_of: Returns the cost of a usage, or None if no price is known.
        """
        parts = tuple(self._finished_parts())
        usage = self._usage(counted, parts)
        cost_usd = cost_of(usage)
        reason = "length" if self.full else finish
        if reason not in _WITHHELD_REASONS:
            reason = "tool_calls" if self.calls else "stop"
        fields: dict[str, Any] = {
            "parts": parts,
            "finish": None if reason == "stop" else reason,
            "usage": None if usage == Usage() else usage,
            "model": None if model == self._request.model else clean_text(model)[:200],
        }
        set_fields = {name: value for name, value in fields.items() if value}
        return Reply(**set_fields) if cost_usd is None else Reply(**set_fields, cost_usd=cost_usd)

    def _usage(self, counted: Usage, parts: Parts) -> Usage:
        """Return the counts, with an estimate for input or output that was not counted, so that budgets work."""
        sent = counted.input_tokens or ceil(request_bytes(self._request) / BYTES_PER_TOKEN)
        written = counted.output_tokens or (ceil(len(to_json(parts)) / BYTES_PER_TOKEN) if parts else 0)
        if (sent, written) == (counted.input_tokens, counted.output_tokens):
            return counted
        return counted.with_differences(input_tokens=sent, output_tokens=written, estimated=True)


def frugal_usage(input_tokens: int, output_tokens: int, cached_input_tokens: int, thinking_tokens: int = 0) -> Usage:
    """Return a usage in which only counts above 0 are set, because history stores the set fields."""
    counts: dict[str, Any] = {
        "input_tokens": input_tokens,
        "output_tokens": output_tokens,
        "cached_input_tokens": min(cached_input_tokens, input_tokens),
        "thinking_tokens": min(thinking_tokens, output_tokens),
    }
    return Usage(**{name: count for name, count in counts.items() if count})


def _json_bytes(text: str) -> int:
    return len(to_json(clean_text(text))) - 2  # without the quotes
