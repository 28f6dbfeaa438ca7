"""Fields that servers with OpenAI's protocol expect back in addition to text and calls.

`reasoning_content` (DeepSeek, Moonshot): the thinking before calls. Without it the next request is refused.
`extra_content` (Gemini): a field of a call, with the signature of its thought.
`phase` (OpenAI, Responses): the role of a text, `commentary` or `final_answer`. Newer models get worse without it.
"""

from collections.abc import Iterable, Iterator
from typing import Any

from orga.workflows.types.messages import Message
from orga.workflows.types.parts import Block, OpaquePart, Part, ThinkingPart, ToolCall

REASONING_FIELD, EXTRA_FIELD = "reasoning_content", "extra_content"
"""The names of the fields, and of the formats of their parts."""

PHASE_BLOCK = "message.phase"
"""The format of the part before a text with a phase."""

MAX_CHARS = 1_000_000
"""Characters of a thought. A longer one is not sent back at all."""


class StreamedThought:
    def __init__(self) -> None:
        self._block: dict[str, Any] = {}
        self._pieces: list[str] = []
        self._room = MAX_CHARS

    def add(self, piece: str) -> dict[str, Any] | None:
        """Add a piece. Return the block if one begins with it. It is complete when the thought is closed."""
        is_first = bool(piece) and not self._pieces
        self._room -= len(piece)
        if piece and self._room >= 0:
            self._pieces.append(piece)
        if not is_first:
            return None
        self._block["type"] = REASONING_FIELD
        return self._block

    def close(self, *, is_wanted: bool) -> None:
        """Join the pieces of the text. A thought that is not wanted, or too long, becomes empty."""
        if is_wanted and self._room >= 0 and self._block:
            self._block["text"] = "".join(self._pieces)
        else:
            self._block.clear()


def extra_block(extra: dict[str, Any]) -> dict[str, Any]:
    """Return the extra content of a call as a block, which precedes the call."""
    return {"type": EXTRA_FIELD, EXTRA_FIELD: extra}


def thought_before_calls(message: Message) -> dict[str, Any]:
    """Return the field with the thinking of a message with calls, or nothing."""
    texts = [part.text for part in message.blocks if isinstance(part, ThinkingPart) and part.format == REASONING_FIELD]
    return {REASONING_FIELD: "".join(texts)} if texts and message.calls else {}


def calls_with_extras(parts: Iterable[Part]) -> Iterator[tuple[ToolCall, dict[str, Any]]]:
    """Yield each call with the fields of the block right before it."""
    before: Block | None = None
    for part in parts:
        if isinstance(part, ToolCall):
            yield part, {EXTRA_FIELD: before.data.get(EXTRA_FIELD, {})} if before is not None else {}
            before = None
        elif isinstance(part, OpaquePart) and part.format == EXTRA_FIELD:
            before = part
