"""Converts an MCP server's results and texts to text for models. A note replaces content such as audio."""

import json
import unicodedata
from base64 import b64decode
from collections.abc import Sequence
from typing import Any

from mcp_types import (
    AudioContent,
    BlobResourceContents,
    CallToolResult,
    ContentBlock,
    EmbeddedResource,
    ImageContent,
    ResourceLink,
    TextContent,
)
from pydantic_core import to_json

from orga.activities.media import MAX_DOCUMENT_BYTES, Media, loaded_media
from orga.activities.ports import LoadedMedia
from orga.activities.text.characters import without_invisible, without_sequences
from orga.workflows.types.json_text import as_object
from orga.workflows.types.text import clean_text, clip
from orga.workflows.types.tool_calls.tools import ToolOutput

MAX_BLOCKS = 1_000
"""Blocks of one result that are shown. A note gives the number of the others."""

EMPTY_RESULT = "(nothing)"


def result_output(result: CallToolResult) -> ToolOutput:
    """Return the text of the blocks in order, then the structured content unless a block repeats it.

    Pictures and PDFs that models can read become media of the output.
    """
    blocks = result.content[:MAX_BLOCKS]
    media = [_block_media(block) for block in blocks]
    texts = [_block_text(block) for block, loaded in zip(blocks, media, strict=True) if loaded is None]
    if len(result.content) > MAX_BLOCKS:
        texts.append(f"[{len(result.content) - MAX_BLOCKS} more blocks left out]")
    structured: Any = result.structured_content
    if structured is not None and not _repeats_structured(structured, blocks):
        texts.append(to_json(structured).decode())
    shown = tuple(loaded for loaded in media if loaded is not None)
    output = ToolOutput(content="\n".join(texts) or ("" if shown else EMPTY_RESULT))
    return output.with_media(shown) if shown else output


def _block_media(block: ContentBlock) -> LoadedMedia | None:
    """Return the block's picture or PDF, or None. Its bytes decide the type, not the server's claim."""
    match block:
        case ImageContent():
            data, name = block.data, ""
        case EmbeddedResource(resource=BlobResourceContents() as resource):
            data, name = resource.blob, str(resource.uri).rpartition("/")[2]
        case _:
            return None
    if _decoded_size(data) > MAX_DOCUMENT_BYTES:
        return None
    try:
        return loaded_media(Media(b64decode(data, validate=True), name))
    except ValueError:
        return None


def value_output(result: CallToolResult) -> ToolOutput:
    """Return the result of a tool with an output schema. Its structured content is the last line, as JSON."""
    structured: Any = result.structured_content
    if structured is None:
        return result_output(result)
    line, blocks = to_json(structured).decode(), result.content
    are_texts = all(isinstance(block, TextContent) for block in blocks)
    if not blocks or (are_texts and _repeats_structured(structured, blocks)):
        return ToolOutput(content=line)
    rest = result_output(CallToolResult(content=blocks))
    return rest.with_content("\n".join(filter(None, (rest.content, line))))


def _block_text(block: ContentBlock) -> str:
    match block:
        case TextContent():
            return block.text
        case ImageContent() | AudioContent():
            return f"[{block.type} {block.mime_type}, {_decoded_size(block.data)} bytes; it cannot be shown here]"
        case ResourceLink():
            description = f": {block.description}" if block.description else ""
            return f"[link to {block.uri} ({block.title or block.name}){description}]"
        case EmbeddedResource():
            resource = block.resource
            title = f"{resource.uri}, {resource.mime_type or 'unknown type'}"
            if isinstance(resource, BlobResourceContents):
                return f"[{title}, {_decoded_size(resource.blob)} bytes; it cannot be shown here]"
            return f"[{title}]\n{resource.text}"


def _decoded_size(base64: str) -> int:
    return len(base64) * 3 // 4 - base64[-2:].count("=")


def _repeats_structured(structured: Any, blocks: Sequence[ContentBlock]) -> bool:
    """Return whether text blocks repeat the structured content. Servers do this for clients that only read text."""
    texts = [block.text for block in blocks if isinstance(block, TextContent)]
    parsed = [_parsed_json(text) for text in texts]
    fields = list(as_object(structured).values())
    values = [structured, *(fields if len(fields) == 1 else ())]  # `{"result": "text"}` wraps a plain value
    return any(value in texts or value in parsed or value == parsed for value in values)


def _parsed_json(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


_INVISIBLE_CATEGORIES = frozenset({"Co", "Cn", "Zl", "Zp"})
"""Private and unassigned characters, and line separators. A server's text must not end a line of ours."""

_EXAMINED_FACTOR = 4
"""Characters that are read for each byte of the limit. Without a limit, a huge text would delay the worker."""


def is_plain_text(text: str) -> bool:
    """Return whether `text` hides nothing."""
    return (text.isascii() and text.isprintable()) or _visible_text(text) == text


def plain_line(text: str, max_bytes: int) -> str:
    """Return `text` without hidden characters, cut to `max_bytes`."""
    examined = text[: max_bytes * _EXAMINED_FACTOR]
    shown = _visible_text(examined).strip() + ("…" if len(text) > len(examined) else "")
    return clip(shown, max_bytes, "the server says more")


def _visible_text(text: str) -> str:
    visible = "".join(c for c in clean_text(text) if unicodedata.category(c) not in _INVISIBLE_CATEGORIES)
    text, _ = without_sequences(visible)
    text, _ = without_invisible(text)
    return text
