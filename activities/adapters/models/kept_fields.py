"""What servers that speak OpenAI's protocol want back beside text and calls.

`reasoning_content` (DeepSeek, Moonshot): what was thought before calls; without it the next request is refused.
`extra_content` (Gemini): of a call, with the signature of the thought behind it.
`phase` (OpenAI, Responses): what a text is, `commentary` or `final_answer`; newer models do worse without it.
"""

from collections.abc import Iterable, Iterator
from typing import Any

from orga.workflows.types.messages import Message
from orga.workflows.types.parts import Block, OpaquePart, Part, ThinkingPart, ToolCall

REASONING_FIELD, EXTRA_FIELD = "reasoning_content", "extra_content"
"""The fields, and the formats of their parts."""

PHASE_BLOCK = "message.phase"
"""The format of the part before such a text."""

MAX_CHARS = 1_000_000
"""Of a thought: it goes back whole or not at all."""


class StreamedThought:
    """A thought that streams in."""

    def __init__(self) -> None:
        self._block: dict[str, Any] = {}
        self._pieces: list[str] = []
        self._room = MAX_CHARS

    def add(self, piece: str) -> dict[str, Any] | None:
        """Add a piece; return the block that begins with it, which is whole once the thought is closed."""
        is_first = bool(piece) and not self._pieces
        self._room -= len(piece)
        if piece and self._room >= 0:
            self._pieces.append(piece)
        if not is_first:
            return None
        self._block["type"] = REASONING_FIELD
        return self._block

    def close(self, *, is_wanted: bool) -> None:
        """Put its text together; one that nobody wants back, or that is too long, leaves nothing."""
        if is_wanted and self._room >= 0 and self._block:
            self._block["text"] = "".join(self._pieces)
        else:
            self._block.clear()


def extra_block(extra: dict[str, Any]) -> dict[str, Any]:
    """Return what a call brings beside itself, as a block that stands before it."""
    return {"type": EXTRA_FIELD, EXTRA_FIELD: extra}


def thought_before_calls(message: Message) -> dict[str, Any]:
    """Return the field of a message that calls, if there is anything for it."""
    texts = [part.text for part in message.blocks if isinstance(part, ThinkingPart) and part.format == REASONING_FIELD]
    return {REASONING_FIELD: "".join(texts)} if texts and message.calls else {}


def calls_with_extras(parts: Iterable[Part]) -> Iterator[tuple[ToolCall, dict[str, Any]]]:
    """Yield each call with the fields that stand right before it."""
    before: Block | None = None
    for part in parts:
        if isinstance(part, ToolCall):
            yield part, {EXTRA_FIELD: before.data.get(EXTRA_FIELD, {})} if before is not None else {}
            before = None
        elif isinstance(part, OpaquePart) and part.format == EXTRA_FIELD:
            before = part
