"""A reply put together from its pieces, bounded as a whole."""

from collections.abc import Callable, Iterator
from math import ceil
from typing import Any

from pydantic_core import to_json

from orga.activities.adapters.models.blocks import block_part
from orga.activities.adapters.models.calls import OpenCall, finished_calls
from orga.activities.adapters.models.dialect import BYTES_PER_TOKEN, request_bytes
from orga.activities.ports import ModelRequest
from orga.workflows.types.messages import FinishReason, Reply
from orga.workflows.types.parts import BETWEEN_TEXTS, Part, Parts, said
from orga.workflows.types.text import clean_json, clean_text
from orga.workflows.types.usage import Usage

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
        self.full = False
        self._request = request
        self._on_text = on_text
        self._text: list[str] | None = None
        self._parts: list[OpenCall | list[str] | dict[str, Any]] = []
        self._half = ""
        self._room = MAX_REPLY_BYTES

    def begin_text(self) -> None:
        """Let the next text be a part of its own."""
        self._text = None

    def add_text(self, piece: str) -> None:
        """Add visible text to the latest one; half a character waits for its other half."""
        piece = self._half + piece
        self._half = piece[-1:] if "\ud800" <= piece[-1:] <= "\udbff" else ""
        text = self.fitting(clean_text(piece.removesuffix(self._half)))
        if text:
            if self._text is None:
                if any(isinstance(part, list) for part in self._parts):
                    self._on_text(BETWEEN_TEXTS)
                self._text = []
                self._add(self._text)
            self._text.append(text)
            self._on_text(text)

    def open_call(self, call: OpenCall) -> bool:
        """Begin a call; False where there are more than any reply may have, so that the rest is dropped."""
        self.full = self.full or len(self.calls) >= MAX_OPEN_CALLS
        if not self.full:
            self.calls.append(call)
            self._add(call)
        return not self.full

    def add_block(self, block: dict[str, Any], before: OpenCall | None = None) -> None:
        """Let a block stand here, or before a call, that goes back as it came; it may grow until the reply is whole."""
        self._add(block)
        if before is not None:
            place = next(place for place, part in enumerate(self._parts) if part is before)
            self._parts.insert(place, self._parts.pop())

    def _add(self, part: OpenCall | list[str] | dict[str, Any]) -> None:
        self.full = self.full or len(self._parts) >= MAX_PARTS
        self._parts.append(part)

    def add_arguments(self, call: OpenCall, piece: str) -> None:
        """Add to the argument text of `call`."""
        call.arguments.append(self.fitting(piece))

    def _block(self, block: dict[str, Any]) -> Iterator[Part]:
        """Yield the block; one that doesn't fit is dropped whole."""
        block = clean_json(block)
        size = len(to_json(block))
        self.full = self.full or size > self._room
        if block and not self.full:
            self._room -= size
            yield block_part(block)

    def fitting(self, piece: str) -> str:
        """Return the part of `piece` that there is room for, and take that room."""
        kept = piece
        while (size := _json_bytes(kept)) > self._room:
            kept = kept[: len(kept) * self._room // size]
            self.full = True
        self._room -= size
        return kept

    def _finished(self) -> Iterator[Part]:
        calls = iter(finished_calls(self.calls, self._request.messages))
        for part in self._parts:
            if isinstance(part, OpenCall):
                yield next(calls)
            elif isinstance(part, list):
                yield said("".join(part))
            else:
                yield from self._block(part)

    def reply(
        self, finish: FinishReason, counted: Usage, model: str, cost_of: Callable[[Usage], float | None]
    ) -> Reply:
        """Return the reply; only what differs from the defaults is set, for that is what the history stores.

        Args:
            finish: Why it ended.
            counted: What the provider counted; where it counted nothing, an estimate takes its place.
            model: The one that answered.
            cost_of: Returns what so many tokens cost, None where no price is known.
        """
        parts = tuple(self._finished())
        usage = self._usage(counted, parts)
        cost_usd = cost_of(usage)
        reason = _finish("length" if self.full else finish, has_calls=bool(self.calls))
        fields: dict[str, Any] = {
            "parts": parts,
            "finish": None if reason == "stop" else reason,
            "usage": None if usage == Usage() else usage,
            "model": None if model == self._request.model else clean_text(model)[:200],
        }
        set_fields = {name: value for name, value in fields.items() if value}
        return Reply(**set_fields) if cost_usd is None else Reply(**set_fields, cost_usd=cost_usd)

    def _usage(self, counted: Usage, parts: Parts) -> Usage:
        """Return what was counted, with an estimate for a side that was not: budgets have to bind all the same."""
        sent = counted.input_tokens or ceil(request_bytes(self._request) / BYTES_PER_TOKEN)
        said = counted.output_tokens or (ceil(len(to_json(parts)) / BYTES_PER_TOKEN) if parts else 0)
        if (sent, said) == (counted.input_tokens, counted.output_tokens):
            return counted
        return counted.with_differences(input_tokens=sent, output_tokens=said, estimated=True)


def frugal_usage(input_tokens: int, output_tokens: int, cached_input_tokens: int) -> Usage:
    """Return the usage with its zeros left unset."""
    counts: dict[str, Any] = {
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
