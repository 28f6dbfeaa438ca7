"""A reply put together from its pieces, bounded as a whole."""

from collections.abc import Callable
from typing import Any, Literal

from pydantic_core import to_json

from orga.activities.adapters.models.calls import OpenCall, finished_calls
from orga.activities.ports import ModelRequest
from orga.workflows.types.messages import FinishReason, Reply, order_of
from orga.workflows.types.text import clean_json, clean_text
from orga.workflows.types.usage import Usage

Kind = Literal["block", "call", "text"]

MAX_REPLY_BYTES = 1_000_000
"""Of text, arguments and blocks as JSON: half of what Temporal takes as one payload."""

MAX_OPEN_CALLS = 256
"""Of one reply while it streams in; many times what is taken in of it."""

MAX_PARTS = 1_000
"""Texts, calls and blocks that follow each other in one reply."""

_WITHHELD: frozenset[FinishReason] = frozenset({"length", "content_filter", "refusal"})


class Assembly:
    """Pieces of one reply. When it is `full` the rest is dropped, and the reply counts as cut by length."""

    def __init__(self, request: ModelRequest, on_text: Callable[[str], None]) -> None:
        self.calls: list[OpenCall] = []
        self.blocks: list[dict[str, Any]] = []
        self.full = False
        self._request = request
        self._on_text = on_text
        self._text: list[str] = []
        self._parts: list[tuple[Kind, int]] = []
        self._half = ""
        self._room = MAX_REPLY_BYTES

    @property
    def has_text(self) -> bool:
        """Whether any text came in."""
        return bool(self._text)

    def add_text(self, piece: str) -> None:
        """Add visible text; half a character waits for its other half."""
        piece = self._half + piece
        self._half = piece[-1:] if "\ud800" <= piece[-1:] <= "\udbff" else ""
        text = self.fitting(clean_text(piece.removesuffix(self._half)))
        if text:
            self._text.append(text)
            self._begin("text", len(text))
            self._on_text(text)

    def open_call(self, call: OpenCall) -> bool:
        """Begin a call; False where there are more than any reply may have, so that the rest is dropped."""
        self.full = self.full or len(self.calls) >= MAX_OPEN_CALLS
        if not self.full:
            self.calls.append(call)
            self._begin("call")
        return not self.full

    def begin_block(self) -> None:
        """Note that a block stands here; it is added once it is whole."""
        self._begin("block")

    def _begin(self, kind: Kind, chars: int = 0) -> None:
        if kind == "text" and self._parts and self._parts[-1][0] == kind:
            chars += self._parts.pop()[1]
        self.full = self.full or len(self._parts) >= MAX_PARTS
        self._parts.append((kind, chars))

    def add_arguments(self, call: OpenCall, piece: str) -> None:
        """Add to the argument text of `call`."""
        call.arguments.append(self.fitting(piece))

    def add_block(self, block: dict[str, Any]) -> None:
        """Keep a block that goes back to the provider as it came; one that doesn't fit is dropped whole."""
        block = clean_json(block)
        size = len(to_json(block))
        self.full = self.full or size > self._room
        if not self.full:
            self._room -= size
            self.blocks.append(block)

    def fitting(self, piece: str) -> str:
        """Return the part of `piece` that there is room for, and take that room."""
        kept = piece
        while (size := _json_bytes(kept)) > self._room:
            kept = kept[: len(kept) * self._room // size]
            self.full = True
        self._room -= size
        return kept

    def reply(self, finish: FinishReason, usage: Usage, model: str, cost_usd: float | None) -> Reply:
        """Return the reply; only what differs from the defaults is set, for that is what the history stores."""
        calls = finished_calls(self.calls, self._request.messages)
        reason = _finish("length" if self.full else finish, has_calls=bool(calls))
        fields: dict[str, Any] = {
            "text": "".join(self._text),
            "calls": calls,
            "blocks": tuple(self.blocks),
            "order": order_of(self._parts) if self.blocks else (),
            "finish": None if reason == "stop" else reason,
            "usage": None if usage == Usage() else usage,
            "model": None if model == self._request.model else clean_text(model)[:200],
        }
        set_fields = {name: value for name, value in fields.items() if value}
        return Reply(**set_fields) if cost_usd is None else Reply(**set_fields, cost_usd=cost_usd)


def frugal_usage(input_tokens: int, output_tokens: int, cached_input_tokens: int) -> Usage:
    """Return the usage with its zeros left unset."""
    counts = {
        "input_tokens": input_tokens,
        "output_tokens": output_tokens,
        "cached_input_tokens": min(cached_input_tokens, input_tokens),
    }
    return Usage(**{name: count for name, count in counts.items() if count})


def _finish(finish: FinishReason, *, has_calls: bool) -> FinishReason:
    """Return the reason that agrees with the calls; a reply that was cut or withheld stays so."""
    if finish in _WITHHELD:
        return finish
    return "tool_calls" if has_calls else "stop"


def _json_bytes(text: str) -> int:
    return len(to_json(clean_text(text))) - 2
