"""What only its provider reads, as it stands on the wire: an object whose `type` says what it is."""

from typing import Any

from orga.workflows.types.parts import Block, OpaquePart, ThinkingPart

_TEXTS = {"thinking": "thinking", "reasoning.text": "text", "reasoning.summary": "summary", "reasoning_content": "text"}
"""Where thinking has its text, by type."""


def block_part(block: dict[str, Any]) -> Block:
    """Return the block as a part; `wire_block` makes the same block of it."""
    data = dict(block)
    kind = data.get("type")
    if not isinstance(kind, str) or not kind:
        return OpaquePart(kind="opaque", data=data)
    del data["type"]
    field = _TEXTS.get(kind)
    text = None if field is None else data.get(field)
    if field is None or not isinstance(text, str):
        return OpaquePart(kind="opaque", format=kind, data=data)
    del data[field]
    fields: dict[str, Any] = {name: value for name, value in (("text", text), ("data", data)) if value}
    return ThinkingPart(kind="thinking", format=kind, **fields)


def wire_block(part: Block) -> dict[str, Any]:
    """Return the block that the part was made of."""
    if not part.format:
        return dict(part.data)
    text = {_TEXTS.get(part.format, "text"): part.text} if isinstance(part, ThinkingPart) else {}
    return {"type": part.format, **text, **part.data}
